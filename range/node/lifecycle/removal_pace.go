package lifecycle

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// removeBatch bounds the replicas that are removed with a few syncs, before the reconciler looks
// for other work.
const removeBatch = 1000

// removePause is the shortest time between two removals from the disk, unless a whole batch waits:
// each removal flushes the memtables, with all writes to the node, a few times. Replicas move away
// one by one, and there may be thousands of them.
const removePause = 2 * time.Second

// removalPace gathers replicas that arrive one by one. It belongs to the reconciler's goroutine.
type removalPace struct {
	// next is the time before which nothing is removed from the disk, unless a whole batch waits.
	next time.Time
	// resting are closed replicas that wait for that time.
	resting map[keys.PartitionID]struct{}
	timer   *time.Timer
}

func (p *removalPace) init() {
	p.resting = make(map[keys.PartitionID]struct{})
	p.timer = time.NewTimer(removePause)
	p.timer.Stop()
}

// late reports whether n replicas, together with those that wait, have to wait.
func (p *removalPace) late(now time.Time, n int) bool {
	return now.Before(p.next) && n+len(p.resting) < removeBatch
}

// removed is called after a removal from the disk.
func (p *removalPace) removed(now time.Time) { p.next = now.Add(removePause) }

// rest makes closed replicas wait until the next removal.
func (p *removalPace) rest(now time.Time, gone []*hosted.Replica) {
	if len(gone) == 0 {
		return
	}
	for _, h := range gone {
		p.resting[h.ID] = struct{}{}
	}
	p.timer.Reset(p.next.Sub(now))
}

// rested returns the replicas whose wait is over, or that make a batch with n others.
func (p *removalPace) rested(now time.Time, n int) map[keys.PartitionID]struct{} {
	if len(p.resting) == 0 {
		return nil
	}
	if p.late(now, n) {
		p.timer.Reset(p.next.Sub(now)) // others were removed meanwhile
		return nil
	}
	all := p.resting
	p.resting = make(map[keys.PartitionID]struct{})
	p.timer.Stop()
	return all
}
