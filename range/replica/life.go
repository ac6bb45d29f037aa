package replica

import (
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// life counts what uses a replica, so that Close can wait for it.
type life struct {
	// active counts the calls of Submit, and the reads that are not answered.
	active atomic.Int64
	closed atomic.Bool
	// drained is set when the replica is being closed.
	drained atomic.Pointer[chan struct{}]
}

// enter announces a user, until exit. It returns false when the replica is closed.
func (l *life) enter() bool {
	l.active.Add(1)
	if l.closed.Load() {
		l.exit()
		return false
	}
	return true
}

func (l *life) exit() {
	if l.active.Add(-1) == 0 && l.closed.Load() {
		if drained := l.drained.Load(); drained != nil {
			select {
			case *drained <- struct{}{}:
			default:
			}
		}
	}
}

// beginClose closes the replica to new users. It returns false if that was done before.
func (l *life) beginClose() bool {
	drained := make(chan struct{}, 1)
	if !l.drained.CompareAndSwap(nil, &drained) {
		return false
	}
	l.closed.Store(true)
	return true
}

// drain waits until nothing uses the replica, which is being closed.
func (l *life) drain() {
	for drained := *l.drained.Load(); l.active.Load() > 0; {
		<-drained
	}
}

// published is what a partition is, as all may know without a lock.
type published struct {
	// What descriptor points to is never changed.
	descriptor atomic.Pointer[clusterpb.Partition]
	// descriptorAt is the index of the entry that has brought it, or a later one.
	descriptorAt atomic.Uint64
	// coming is the generation of the descriptor that is to follow, if a part of what the present one
	// names is going from the state. It may be an earlier one.
	coming atomic.Uint64
	// consumedBy is the partition that has consumed this one, as soon as it serves the span.
	consumedBy atomic.Pointer[clusterpb.Partition]
}
