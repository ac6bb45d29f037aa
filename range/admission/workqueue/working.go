package workqueue

import "sync/atomic"

// Began says when a request began: the number of looks at the limit before.
type Began int64

// looksCounted is the number of looks after which a request no longer counts as being at work.
const looksCounted = 4

// working counts the requests at work, by when they began. A request that is not answered after
// looksCounted looks does not count any more: it waits for something else than a processor. Safe
// for concurrent use, without a lock.
//
// An end of a request may come at the same time as the look after which the request does not count.
// The count may be wrong by this request then, for as long as a request counts.
type working struct {
	looks atomic.Int64
	// counts are the requests that began after each of the last looks and are not answered.
	counts [looksCounted]atomic.Int64
}

func (w *working) begin(n int64) Began {
	began := w.looks.Load()
	w.counts[began%looksCounted].Add(n)
	return Began(began)
}

func (w *working) end(began Began, n int64) {
	if w.looks.Load()-int64(began) < looksCounted {
		w.counts[began%looksCounted].Add(-n)
	}
}

// pass notes a look. Calls do not overlap.
func (w *working) pass() {
	looks := w.looks.Load() + 1
	w.counts[looks%looksCounted].Store(0)
	w.looks.Store(looks)
}

func (w *working) total() (n int64) {
	for i := range w.counts {
		n += w.counts[i].Load()
	}
	return max(n, 0)
}
