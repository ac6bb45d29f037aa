package membership

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config configures a Membership. All but Self and Coordination must be set.
type Config struct {
	Meta    *meta.Records
	Store   *store.Store
	Flag    *authflag.Flag
	Upgrade *upgrade.Upgrade
	Logger  *slog.Logger
	// Self is the id of this server. It need not ask itself for its version. If Self is 0, it does.
	Self uint64

	// Group is the Raft group of the store.
	Group Group
	// Coordination is set if members keep a coordination store beside this store. The coordination
	// store is founded as soon as possible.
	Coordination bool
	// Servers makes calls to other servers. Peers knows which members have been heard.
	Servers Servers
	Peers   Peers
	// Own reports this server's own health.
	Own OwnHealth
}

// Group has the methods of a Raft group that changes of the core's members need. host.Group has
// them.
type Group interface {
	// Applied is the last applied index.
	Applied() uint64
	// Followers reports the followers' progress, at once or later. It reports nil if this member does
	// not lead.
	Followers(report func(map[keys.ReplicaID]group.Progress))
	// TransferLeader transfers the leadership of a term to a member, if the term is the present one.
	TransferLeader(term uint64, to keys.ReplicaID)
}

// Servers makes calls to other servers.
type Servers interface {
	// Hello asks the server at an address for its identity.
	Hello(ctx context.Context, address string) (*clusterpb.BootstrapHello, error)
	// Inform sends the members of the core to the server at an address.
	Inform(ctx context.Context, address string, m *clusterpb.CoreMembers) error
	// Check asks the member of the core at an address for its health.
	Check(ctx context.Context, address string) (*clusterpb.MemberHealth, error)
}

// Peers knows which other members have been heard, by their replica ids.
type Peers interface {
	// Down reports whether a member has been silent for an election timeout.
	Down(replica uint64) bool
	// LeaderAverse reports whether a member leaves leadership to others at present: its disk is slow
	// or stalls, or it is about to stop.
	LeaderAverse(replica uint64) bool
}

// OwnHealth reports a server's own health.
type OwnHealth interface {
	// NotReady returns the reasons why this server does not serve. CoordinationErr returns the error
	// because of which its part of the coordination store does not serve.
	NotReady() []string
	CoordinationErr() error
	// Disk returns the state of the log's disk. Delays returns the delays of the server.
	Disk() DiskState
	Delays() Delays
}

// DiskState is the state of the disk of a member's log.
type DiskState struct {
	// Slow is set if syncs of the log take many times longer than on other members. Stalled is set if
	// a write has not ended for longer than an election timeout.
	Slow, Stalled bool
	// Sync is the duration of a sync. It is 0 if it is not known.
	Sync time.Duration
}

// Delays are delays of a member's server (package delays).
type Delays struct {
	// ProcessorWait is the time for which the process waits for a processor. It is 0 if it is not
	// known.
	ProcessorWait time.Duration
	// RoundTrips are the known round-trip times to other members, by replica id.
	RoundTrips map[uint64]time.Duration
}
