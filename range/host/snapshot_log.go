package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A follower that was sent the state goes on with the log behind it. If that is gone when it has
// installed it, it needs the next snapshot, and so on for as long as the partition is written to.
// So the log keeps what follows a snapshot that is on its way, and for a while afterwards; but not
// more than its share of what all groups may keep.

const (
	// snapshotLogTime is for how long after its stream a follower may take to install a snapshot
	// and to say so.
	snapshotLogTime = time.Minute
	// snapshotLogShare is the part of Config.TotalLogBytes that one group may keep for that. There
	// are maxSnapshots of them at a time.
	snapshotLogShare = 2 * maxSnapshots
)

// keptFor is what the log keeps for one follower: what comes after the index. until is when that is
// over, 0 as long as the snapshot is being sent.
type keptFor struct {
	index uint64
	until int64
}

// keepFrom notes that a snapshot of an index, or a later one, is on its way to a follower. Of the
// shard worker.
func (g *Group) keepFrom(to keys.ReplicaID, index uint64) {
	if g.steps.kept == nil {
		g.steps.kept = make(map[keys.ReplicaID]keptFor)
	}
	g.steps.kept[to] = keptFor{index: index}
}

// sent notes how that ended.
func (g *Group) sent(to keys.ReplicaID, ok bool) {
	k, found := g.steps.kept[to]
	switch {
	case !found:
	case ok:
		k.until = g.host.now() + int64(snapshotLogTime)
		g.steps.kept[to] = k
	default:
		delete(g.steps.kept, to)
	}
}

// caughtUp is up to where all followers have the log, if this replica leads. Of the shard worker.
func (g *Group) caughtUp() (index uint64, leading bool) {
	if !g.core.Leadership().IsLeader {
		return 0, false
	}
	index = g.core.Applied()
	g.core.Followers(func(_ keys.ReplicaID, p group.Progress) { index = min(index, p.Match) })
	return index, true
}

// needed bounds what may be truncated, by what followers need that were sent a snapshot. Of the
// shard worker.
func (g *Group) needed(to uint64) uint64 {
	if len(g.steps.kept) == 0 {
		return to
	}
	if !g.core.Leadership().IsLeader {
		clear(g.steps.kept)
		return to
	}
	now := g.host.now()
	g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
		if k, found := g.steps.kept[id]; found && (p.Match >= k.index ||
			k.until != 0 && now >= k.until) {
			delete(g.steps.kept, id)
		}
	})
	if _, _, bytes := g.storage.Extent(); bytes > g.host.config.TotalLogBytes/snapshotLogShare {
		return to
	}
	for _, k := range g.steps.kept {
		to = min(to, k.index)
	}
	return to
}
