package raftlog

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Truncate drops the log up to and including index, which must be durable in the state: see
// StateMachine.DurableApplied. The truncation is not synced. If a crash undoes it, the entries are
// there again, which is harmless.
//
// It must not run at the same time as an append that replaces the log by a snapshot. The host calls
// it from the apply worker of the group, which also installs snapshots, and never before the append
// of an installed snapshot is done.
func (g *Group) Truncate(index uint64) error {
	first, last, _ := g.Extent()
	if index < first {
		return nil
	}
	if index > last {
		return fmt.Errorf("group %s: truncating at %d, but the log ends at %d", g.id, index, last)
	}
	term, err := g.Term(index)
	if err != nil {
		return err
	}
	batch := g.log.db.NewBatch()
	defer batch.Close()
	if err := batch.DeleteRange(appendEntryKey(nil, g.id, 0), appendEntryKey(nil, g.id, index+1),
		nil); err != nil {
		return err
	}
	t := truncation{index, term}
	if err := batch.Set(appendGroupKey(nil, g.id, kindTruncated), encodeTruncation(t),
		nil); err != nil {
		return err
	}
	// Readers are told of the new first index before the entries are deleted, so that no reader
	// finds a hole.
	g.mu.Lock()
	if index > g.mu.truncated.index && index <= g.mu.last {
		kept := float64(g.mu.last-index) / float64(g.mu.last-g.mu.truncated.index)
		g.mu.truncated = t
		g.mu.bytes = int64(float64(g.mu.bytes) * kept)
		if over := len(g.mu.tail) - int(g.mu.last-index); over > 0 {
			for _, e := range g.mu.tail[:over] {
				g.mu.tailBytes -= entryFootprint(e)
			}
			g.mu.tail = append(g.mu.tail[:0:0], g.mu.tail[over:]...)
		}
		if invariants.Enabled {
			g.checkInvariantsLocked()
		}
	}
	g.mu.Unlock()
	if err := g.log.db.Commit(batch, false); err != nil {
		return fmt.Errorf("group %s: truncating the log: %w", g.id, err)
	}
	g.log.metrics.truncations.Inc()
	return nil
}
