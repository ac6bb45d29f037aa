package hosted

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// recentChanges is the number of changes of leaders that are remembered one by one. A reader that
// is further behind looks at all replicas.
const recentChanges = 4096

// Leaders holds the groups that this node leads, and the latest changes.
type Leaders struct {
	replicas *Registry
	mu       struct {
		sync.Mutex
		led map[*Replica]struct{}
		// misplaced are the groups that are led here and preferred elsewhere.
		misplaced map[*Replica]struct{}
		// recent is a ring of the partitions whose leader changed; version counts the changes.
		recent  []keys.PartitionID
		version uint64
		changed chan struct{}
	}
}

func NewLeaders(r *Registry) *Leaders {
	l := &Leaders{replicas: r}
	l.mu.led = make(map[*Replica]struct{})
	l.mu.misplaced = make(map[*Replica]struct{})
	l.mu.changed = make(chan struct{})
	return l
}

// Changed notes a change. The shard workers call it.
func (l *Leaders) Changed(h *Replica, to group.Leadership) {
	misplaced := to.IsLeader && !h.PrefersSelf()
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.IsLeader {
		l.mu.led[h] = struct{}{}
	} else {
		delete(l.mu.led, h)
	}
	if misplaced {
		l.mu.misplaced[h] = struct{}{}
	} else {
		delete(l.mu.misplaced, h)
	}
	if to.Leader != 0 {
		l.noteLocked(h.ID)
	}
}

func (l *Leaders) noteLocked(id keys.PartitionID) {
	if len(l.mu.recent) < recentChanges {
		l.mu.recent = append(l.mu.recent, id)
	} else {
		l.mu.recent[l.mu.version%recentChanges] = id
	}
	l.mu.version++
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// Forget drops a replica that was removed.
func (l *Leaders) Forget(h *Replica) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.led, h)
	delete(l.mu.misplaced, h)
}

// Relisted checks again whether a group is led where it is preferred: its descriptor changed.
func (l *Leaders) Relisted(h *Replica) {
	misplaced := !h.PrefersSelf()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, led := l.mu.led[h]; led && misplaced {
		l.mu.misplaced[h] = struct{}{}
	} else {
		delete(l.mu.misplaced, h)
	}
}

func (l *Leaders) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.led)
}

func snapshotOf(set map[*Replica]struct{}) []*Replica {
	all := make([]*Replica, 0, len(set))
	for h := range set {
		all = append(all, h)
	}
	return all
}

func (l *Leaders) Led() []*Replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshotOf(l.mu.led)
}

func (l *Leaders) Misplaced() []*Replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshotOf(l.mu.misplaced)
}

// Leader returns the replica that leads a partition, as far as this node knows from its own
// replica; nil if it does not know.
func (l *Leaders) Leader(id keys.PartitionID) *clusterpb.Leader {
	h := l.replicas.Get(id)
	if h == nil {
		return nil
	}
	return h.leaderHint()
}

// LeadersSince returns the leaders of this node's partitions that changed after a version, all that
// are known for version 0, the version reached, and a channel that is closed at the next change.
func (l *Leaders) LeadersSince(version uint64) (hints []*clusterpb.Leader, reached uint64,
	changed <-chan struct{}) {
	l.mu.Lock()
	reached, changed = l.mu.version, l.mu.changed
	var ids []keys.PartitionID
	all := version == 0 || reached-version > uint64(len(l.mu.recent))
	if !all {
		seen := make(map[keys.PartitionID]struct{}, reached-version)
		for v := version; v < reached; v++ {
			id := l.mu.recent[v%recentChanges]
			if _, again := seen[id]; !again {
				seen[id] = struct{}{}
				ids = append(ids, id)
			}
		}
	}
	l.mu.Unlock()
	if all {
		for _, h := range l.replicas.All() {
			if hint := h.leaderHint(); hint != nil {
				hints = append(hints, hint)
			}
		}
		return hints, reached, changed
	}
	for _, id := range ids {
		if hint := l.Leader(id); hint != nil {
			hints = append(hints, hint)
		}
	}
	return hints, reached, changed
}
