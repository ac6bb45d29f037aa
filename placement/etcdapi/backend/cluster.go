package backend

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Identity names a cluster and a member of it in the headers of answers.
type Identity interface {
	ClusterID() uint64
	// MemberID is 0 while it is not known yet.
	MemberID() uint64
}

// Cluster is the cluster around the store, and this member of it. Its methods may be called from
// any goroutine. An error of gRPC (those of rpctypes, for example) is handed to the client as it
// is; errors.ErrUnsupported becomes Unimplemented.
type Cluster interface {
	Identity
	// MemberOf is the id, as in Members, of the member that has a replica of the store; 0 if none
	// has.
	MemberOf(keys.ReplicaID) uint64
	// Learner says whether this member has no vote.
	Learner() bool
	// Members lists the members as this member knows them, or if linearizable, with every change
	// that was answered anywhere before the call.
	Members(ctx context.Context, linearizable bool) ([]Member, error)
	// Clocks returns what the clocks of the members with a vote show now, in Unix nanoseconds, of
	// those members that were heard lately, and the number of all members with a vote. The caller
	// may change the slice.
	Clocks() (clocks []int64, members int)

	// Add adds a member with these peer URLs, and returns it. Remove, Update and Promote name a
	// member by its id. All return the members after the change. The outgoing metadata of their
	// contexts name the client's user: another member that does the change judges the user again.
	Add(ctx context.Context, peerURLs []string, learner bool) (Member, []Member, error)
	Remove(ctx context.Context, id uint64) ([]Member, error)
	Update(ctx context.Context, id uint64, peerURLs []string) ([]Member, error)
	Promote(ctx context.Context, id uint64) ([]Member, error)
	// MoveLeader is called on the leader, and returns when the member of that id leads.
	MoveLeader(ctx context.Context, id uint64) error

	// GiveBack has this member's disk take back the space of what was deleted and compacted.
	GiveBack(context.Context) error
}

// Member is one member of the cluster.
type Member struct {
	ID uint64
	// Name is empty for a member that has not started yet.
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}
