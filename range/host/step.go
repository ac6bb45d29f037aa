package host

import (
	"iter"
	"slices"
)

// What brings work for several groups, a client's requests or a peer's messages, has all of them
// stepped in one pass over their shards, by its own goroutine: on a machine with time to spare,
// waking the workers takes longer than the pass. What they want leaves together: one message for
// each peer instead of one for each group, and one append, which the log syncs at once instead of
// one after the other; and so it goes on at the peers.

// step makes a pass over those of the shards that have something ready and in which no goroutine is
// in one, on the caller's goroutine. What becomes ready meanwhile is left to the workers, so a
// caller is held up for one pass at most. What one shard wants waits for the others, which takes
// microseconds, unless Raft has to read old entries from the disk for a follower that lags. The
// caller holds no lock, and bears the callbacks of the groups.
func (h *Host) step(shards ...*shard) {
	var room [8]*shard
	held := room[:0]
	for _, s := range shards {
		batch := s.begin()
		if batch == nil {
			continue
		}
		held = append(held, s)
		// no other goroutine is in a pass over that one either, until this one is over
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

// Step ends a pass, or a part of one: those of the groups that have proposals of ProposeInPass are
// stepped together, unless something else has had them stepped since.
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

// withShard adds a shard that is not there yet.
func withShard(shards []*shard, s *shard) []*shard {
	if slices.Contains(shards, s) {
		return shards
	}
	return append(shards, s)
}
