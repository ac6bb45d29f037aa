package node

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// recentChanges is how many changes of leaders are remembered one by one. A reader that is further
// behind looks at all replicas.
const recentChanges = 4096

// leaders is which groups this node leads, and what changed lately.
type leaders struct {
	mu struct {
		sync.Mutex
		led map[*hosted]struct{}
		// misplaced are the groups that are led here and preferred elsewhere.
		misplaced map[*hosted]struct{}
		// recent is a ring of the partitions whose leader changed; version counts the changes.
		recent  []keys.PartitionID
		version uint64
		changed chan struct{}
	}
}

func (l *leaders) init() {
	l.mu.led = make(map[*hosted]struct{})
	l.mu.misplaced = make(map[*hosted]struct{})
	l.mu.changed = make(chan struct{})
}

// leadershipChanged is the hook on the shard workers.
func (n *Node) leadershipChanged(h *hosted, l group.Leadership) {
	if l.IsLeader && !h.leading.Load() {
		h.ledSince.Store(n.now())
	}
	was := h.leading.Swap(l.IsLeader)
	misplaced := l.IsLeader && !h.prefersSelf()
	n.leaders.mu.Lock()
	if l.IsLeader {
		n.leaders.mu.led[h] = struct{}{}
	} else {
		delete(n.leaders.mu.led, h)
	}
	if misplaced {
		n.leaders.mu.misplaced[h] = struct{}{}
	} else {
		delete(n.leaders.mu.misplaced, h)
	}
	if l.Leader != 0 {
		n.leaders.noteLocked(h.id)
	}
	n.leaders.mu.Unlock()
	if l.Leader != 0 && h.young.Load() {
		n.young.wake.Send()
	}
	if l.IsLeader || was {
		n.reports.changedLeader(h)
	}
	if l.IsLeader && h.born.Swap(false) {
		// Until then an operator cannot go on with the partition.
		n.reports.carriedOut(h)
	}
	if l.IsLeader {
		n.collector.noticed(h)
	}
	if l.Leader == 0 && !h.removed.Load() {
		n.elections.add(
			h,
			n.now()+int64(n.config.PatienceWithLeaders)+n.jitter(n.config.PatienceWithLeaders),
		)
	}
}

func (l *leaders) noteLocked(id keys.PartitionID) {
	if len(l.mu.recent) < recentChanges {
		l.mu.recent = append(l.mu.recent, id)
	} else {
		l.mu.recent[l.mu.version%recentChanges] = id
	}
	l.mu.version++
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// forget drops a replica that was removed.
func (l *leaders) forget(h *hosted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.led, h)
	delete(l.mu.misplaced, h)
}

// relisted looks again whether a group is led where it is preferred: its descriptor changed.
func (l *leaders) relisted(h *hosted) {
	misplaced := !h.prefersSelf()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, led := l.mu.led[h]; led && misplaced {
		l.mu.misplaced[h] = struct{}{}
	} else {
		delete(l.mu.misplaced, h)
	}
}

func (l *leaders) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.led)
}

func snapshotOf(set map[*hosted]struct{}) []*hosted {
	all := make([]*hosted, 0, len(set))
	for h := range set {
		all = append(all, h)
	}
	return all
}

func (l *leaders) led() []*hosted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshotOf(l.mu.led)
}

func (l *leaders) misplaced() []*hosted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshotOf(l.mu.misplaced)
}

// Leader is which replica leads a partition, as far as this node knows from its own replica; nil if
// it does not know.
func (n *Node) Leader(id keys.PartitionID) *clusterpb.Leader {
	h := n.replicas.get(id)
	if h == nil {
		return nil
	}
	return h.leaderHint()
}

// LeadersSince returns the leaders of this node's partitions that changed after a version, all that
// are known for version 0, the version reached, and a channel that is closed at the next change.
func (n *Node) LeadersSince(version uint64) (hints []*clusterpb.Leader, reached uint64,
	changed <-chan struct{}) {
	n.leaders.mu.Lock()
	reached, changed = n.leaders.mu.version, n.leaders.mu.changed
	var ids []keys.PartitionID
	all := version == 0 || reached-version > uint64(len(n.leaders.mu.recent))
	if !all {
		seen := make(map[keys.PartitionID]struct{}, reached-version)
		for v := version; v < reached; v++ {
			id := n.leaders.mu.recent[v%recentChanges]
			if _, again := seen[id]; !again {
				seen[id] = struct{}{}
				ids = append(ids, id)
			}
		}
	}
	n.leaders.mu.Unlock()
	if all {
		for _, h := range n.replicas.all() {
			if hint := h.leaderHint(); hint != nil {
				hints = append(hints, hint)
			}
		}
		return hints, reached, changed
	}
	for _, id := range ids {
		if hint := n.Leader(id); hint != nil {
			hints = append(hints, hint)
		}
	}
	return hints, reached, changed
}

// Inspect calls visit for every replica that this node holds, for debugging and tests.
func (n *Node) Inspect(visit func(id keys.PartitionID, r *replica.Replica, g *host.Group)) {
	for id, h := range n.replicas.all() {
		visit(id, h.replica, h.group)
	}
}
