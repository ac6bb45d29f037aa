package host

import (
	"iter"
	"slices"
)

// A goroutine that brings work for several groups, such as a client's requests or a peer's
// messages, steps all of them itself, in one pass over their shards: on a machine with idle
// processors, waking the workers takes longer than the pass. The output of all groups leaves
// together: one message per peer instead of one per group, and one append, so that the log syncs
// once. The peers then do the same with what they receive.

// step makes one pass, on the caller's goroutine, over those of the shards that have something
// ready and in which no other pass is under way. Work that becomes ready meanwhile is left to the
// workers, so a caller is delayed by one pass at most. The output of one shard waits for the
// others, which takes microseconds, unless Raft has to read old entries from the disk for a
// follower that lags. The caller must hold no lock, because the groups' callbacks run in the pass.
func (h *Host) step(shards ...*shard) {
	var room [8]*shard
	held := room[:0]
	for _, s := range shards {
		batch := s.begin()
		if batch == nil {
			continue
		}
		held = append(held, s)
		// No other goroutine can be in a pass over held[0] until this pass is over.
		s.out = held[0].own
		for _, g := range batch {
			s.process(g, false)
		}
	}
	if len(held) == 0 {
		return
	}
	// INVARIANT: appends of a group are submitted before the next pass over it begins, so they get
	// to the log in Raft's order.
	held[0].own.flush(h)
	for _, s := range held {
		s.out = s.own
		s.end()
	}
}

// Step ends a pass of ProposeInPass calls: it steps together those of the groups that still have
// unstepped proposals.
func (h *Host) Step(groups iter.Seq[*Group]) {
	var room [8]*shard
	shards := room[:0]
	for g := range groups {
		if g.inbox.stir() {
			g.shard.leave(g)
			shards = withShard(shards, g.shard)
		}
	}
	h.step(shards...)
}

// withShard adds a shard unless it is in the list.
func withShard(shards []*shard, s *shard) []*shard {
	if slices.Contains(shards, s) {
		return shards
	}
	return append(shards, s)
}
