package backend

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Identity names a cluster and a member of it in the headers of answers.
type Identity interface {
	ClusterID() uint64
	// MemberID returns 0 while the id is unknown.
	MemberID() uint64
}

// Cluster is the cluster around the store, and this member of it. Its methods may be called from
// any goroutine. gRPC errors (those of rpctypes, for example) are passed to the client unchanged;
// errors.ErrUnsupported becomes Unimplemented.
type Cluster interface {
	Identity
	// MemberOf returns the id, as in Members, of the member with a replica of the store; 0 if there
	// is none.
	MemberOf(keys.ReplicaID) uint64
	// Learner reports whether this member has no vote.
	Learner() bool
	// Members lists the members as this member knows them, or if linearizable, with every change
	// that was answered anywhere before the call.
	Members(ctx context.Context, linearizable bool) ([]Member, error)
	// Clocks returns the present clocks, in Unix nanoseconds, of those members with a vote that
	// were heard lately, and the number of all members with a vote. The caller may change the
	// slice.
	Clocks() (clocks []int64, members int)

	// Add adds a member with these peer URLs, and returns it. Remove, Update and Promote name a
	// member by its id. All return the members after the change. The outgoing metadata of the
	// context names the client's user: if another member makes the change, it checks the user
	// again.
	Add(ctx context.Context, peerURLs []string, learner bool) (Member, []Member, error)
	Remove(ctx context.Context, id uint64) ([]Member, error)
	Update(ctx context.Context, id uint64, peerURLs []string) ([]Member, error)
	Promote(ctx context.Context, id uint64) ([]Member, error)
	// MoveLeader is called on the leader, and returns when the member of that id leads.
	MoveLeader(ctx context.Context, id uint64) error

	// GiveBack frees this member's disk space of what was deleted and compacted.
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
