package upgrade

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Config is what an Upgrade is made of. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Supported is what this member's program supports.
	Supported release.Range
	// Silent says that nothing has been heard of another member of the core for an election timeout.
	Silent func(replica uint64) bool
	// Notify has a node send a heartbeat soon.
	Notify func(keys.NodeID)
	Logger *slog.Logger
}

// Upgrade is the level of the cluster, and what servers have said to this member of the levels that
// they support, as the leader of one term.
type Upgrade struct {
	config Config
	// poked wakes Run. Capacity 1.
	poked chan struct{}
	mu    struct {
		sync.Mutex
		term uint64
		// since is when the first server was heard in the term.
		since   time.Time
		nodes   map[keys.NodeID]*clusterpb.Levels // nil: from before there were levels
		members map[uint64]memberReport           // by the ids of their directories
	}
}

// memberReport is what a member of the core has said of itself.
type memberReport struct {
	version string
	levels  *clusterpb.Levels
}

// New makes the Upgrade of a member that has heard of no server.
func New(config Config) *Upgrade {
	u := &Upgrade{config: config, poked: make(chan struct{}, 1)}
	u.forgetLocked(0)
	return u
}

func (u *Upgrade) forgetLocked(term uint64) {
	u.mu.term, u.mu.since = term, time.Now()
	u.mu.nodes, u.mu.members = map[keys.NodeID]*clusterpb.Levels{}, map[uint64]memberReport{}
}

// note notes what a server says, and has Run look again if it is news; put is called under the lock
// and says whether it is.
func (u *Upgrade) note(term uint64, put func() (news bool)) {
	u.mu.Lock()
	if u.mu.term != term {
		u.forgetLocked(term)
	}
	news := put()
	u.mu.Unlock()
	if news {
		u.poke()
	}
}

func (u *Upgrade) poke() {
	select {
	case u.poked <- struct{}{}:
	default:
	}
}

// NodeSays notes what a node says to this member, which leads for a term. The levels are not
// changed afterwards.
func (u *Upgrade) NodeSays(term uint64, id keys.NodeID, levels *clusterpb.Levels) {
	u.note(term, func() bool {
		before, heard := u.mu.nodes[id]
		u.mu.nodes[id] = levels
		return !heard || !proto.Equal(before, levels)
	})
}

// MemberSays is NodeSays for the member of the core with a data directory.
func (u *Upgrade) MemberSays(term, directory uint64, version string, levels *clusterpb.Levels) {
	u.note(term, func() bool {
		before, heard := u.mu.members[directory]
		u.mu.members[directory] = memberReport{version, levels}
		return !heard || !proto.Equal(before.levels, levels)
	})
}

// heardFor is for how long this member has heard servers as the leader of a term. It forgets what
// it heard in earlier terms.
func (u *Upgrade) heardFor(term uint64) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.term != term {
		u.forgetLocked(term)
	}
	return time.Since(u.mu.since)
}

// servers lists the servers that count, nodes first, by ascending id.
func (u *Upgrade) servers(v *store.View) ([]server, error) {
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []server
	at := map[uint64]int{} // node -> index
	for _, n := range nodes {
		if n.Status == clusterpb.NodeStatus_NODE_GONE {
			continue
		}
		levels := n.Levels
		if said, heard := u.mu.nodes[keys.NodeID(n.Id)]; heard {
			levels = said
		}
		at[n.Id] = len(list)
		list = append(list, server{known: true, UpgradeServer: &clusterpb.UpgradeServer{Node: n.Id,
			Address: n.Address, Version: n.Version, Alive: n.Alive, Levels: levels}})
	}
	for _, m := range u.config.Store.Members().GetMembers() {
		said, heard := u.mu.members[m.Server]
		node, _, err := meta.LoadID(v, meta.ServerKey(m.Server))
		if err != nil {
			return nil, err
		}
		if i, both := at[node]; both && node != 0 {
			list[i].Member = m.Replica
			continue
		}
		list = append(list, server{known: heard, UpgradeServer: &clusterpb.UpgradeServer{
			Member: m.Replica, Address: m.Address, Version: said.version,
			Alive: heard && !u.config.Silent(m.Replica), Levels: said.levels}})
	}
	return list, nil
}

// notify has the nodes among the servers send heartbeats soon.
func (u *Upgrade) notify(servers []server) {
	for _, s := range servers {
		if s.Node != 0 && s.Alive {
			u.config.Notify(keys.NodeID(s.Node))
		}
	}
}
