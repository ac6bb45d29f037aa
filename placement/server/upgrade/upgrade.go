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

// Config has the dependencies of an Upgrade. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Supported is the range of levels that this member's program supports.
	Supported release.Range
	// Silent reports whether another member of the core has been silent for an election timeout.
	Silent func(replica uint64) bool
	// Notify asks a node to send a heartbeat soon.
	Notify func(keys.NodeID)
	Logger *slog.Logger
}

// Upgrade has the level of the cluster, and the servers' reports about the levels that they support
// to this member as the leader of one term.
type Upgrade struct {
	config Config
	// poked wakes Run. Capacity 1.
	poked chan struct{}
	mu    struct {
		sync.Mutex
		term uint64
		// since is the time of the first report in the term.
		since   time.Time
		nodes   map[keys.NodeID]*clusterpb.Levels // nil: a version from before there were levels
		members map[uint64]memberReport           // by the ids of the members' directories
	}
}

// memberReport is a report of a member of the core about itself.
type memberReport struct {
	version string
	levels  *clusterpb.Levels
}

// New makes the Upgrade of a member that has no reports yet.
func New(config Config) *Upgrade {
	u := &Upgrade{config: config, poked: make(chan struct{}, 1)}
	u.forgetLocked(0)
	return u
}

func (u *Upgrade) forgetLocked(term uint64) {
	u.mu.term, u.mu.since = term, time.Now()
	u.mu.nodes, u.mu.members = map[keys.NodeID]*clusterpb.Levels{}, map[uint64]memberReport{}
}

// note stores a report. put is called with the lock held, and returns whether the report is news.
// If it is, Run looks again.
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

// NodeSays stores the report of a node to this member, which leads for a term. The caller does not
// change levels afterwards.
func (u *Upgrade) NodeSays(term uint64, id keys.NodeID, levels *clusterpb.Levels) {
	u.note(term, func() bool {
		before, heard := u.mu.nodes[id]
		u.mu.nodes[id] = levels
		return !heard || !proto.Equal(before, levels)
	})
}

// MemberSays stores the report of the member of the core with a data directory, as NodeSays does
// for nodes.
func (u *Upgrade) MemberSays(term, directory uint64, version string, levels *clusterpb.Levels) {
	u.note(term, func() bool {
		before, heard := u.mu.members[directory]
		u.mu.members[directory] = memberReport{version, levels}
		return !heard || !proto.Equal(before.levels, levels)
	})
}

// heardFor returns for how long this member has received reports as the leader of a term. It drops
// the reports of earlier terms.
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

// notify asks the nodes among the servers to send heartbeats soon.
func (u *Upgrade) notify(servers []server) {
	for _, s := range servers {
		if s.Node != 0 && s.Alive {
			u.config.Notify(keys.NodeID(s.Node))
		}
	}
}
