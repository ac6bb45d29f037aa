package history

import (
	"sync"
	"time"
)

// Recorder collects operations of many clients at once. It keeps every operation, so the caller
// must bound their number.
type Recorder struct {
	begin time.Time

	mu struct {
		sync.Mutex
		clock      int64
		operations []*Operation
	}
}

// NewRecorder starts an empty history.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Pending is an operation that was called and has not returned.
type Pending struct {
	recorder  *Recorder
	operation *Operation
}

// Begin records a call. It must be called before the request is sent. The answer, outcome and times
// in o are ignored.
func (r *Recorder) Begin(o Operation) Pending {
	o.Outcome, o.Return = Unknown, 0
	o.Began = time.Since(r.begin)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.clock++
	o.Call = r.mu.clock
	r.mu.operations = append(r.mu.operations, &o)
	return Pending{recorder: r, operation: &o}
}

// end records the end of a call. It must be called after the answer was read.
func (p Pending) end(set func(*Operation)) {
	ended := time.Since(p.recorder.begin)
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.recorder.mu.clock++
	p.operation.Return = p.recorder.mu.clock
	p.operation.Ended = ended
	set(p.operation)
}

// Unknown records that the client gave up, or was told that the outcome is unknown.
func (p Pending) Unknown() { p.end(func(*Operation) {}) }

// Refused records that the operation certainly had no effect and never will have one.
func (p Pending) Refused() { p.end(func(o *Operation) { o.Outcome = Refused }) }

// Got records the answer of a Get.
func (p Pending) Got(found State) {
	p.end(func(o *Operation) { o.Outcome, o.Found = Done, found })
}

// Put records the answer of a Put.
func (p Pending) Put() { p.end(func(o *Operation) { o.Outcome = Done }) }

// Deleted records the answer of a Delete.
func (p Pending) Deleted(existed bool) {
	p.end(func(o *Operation) { o.Outcome, o.Existed = Done, existed })
}

// Swapped records the answer of a CompareAndSwap that wrote.
func (p Pending) Swapped() { p.end(func(o *Operation) { o.Outcome, o.Swapped = Done, true }) }

// NotSwapped records the answer of a CompareAndSwap that found something else.
func (p Pending) NotSwapped(found State) {
	p.end(func(o *Operation) { o.Outcome, o.Found = Done, found })
}

// Len is the number of operations that were begun.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.operations)
}

// Operations returns a copy of the history so far, in the order of calls. Operations that have not
// returned have an unknown outcome.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	operations := make([]Operation, len(r.mu.operations))
	for i, o := range r.mu.operations {
		operations[i] = *o
	}
	return operations
}

// Take removes the operations on keys for which match returns true, and returns them in the order
// of calls: a part of the history that is over, to be checked and dropped. No such operation may be
// pending, and no later operation may use these keys.
func (r *Recorder) Take(match func(key string) bool) []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []Operation
	kept := r.mu.operations[:0]
	for _, o := range r.mu.operations {
		if match(o.Key) {
			taken = append(taken, *o)
		} else {
			kept = append(kept, o)
		}
	}
	clear(r.mu.operations[len(kept):])
	r.mu.operations = kept
	return taken
}
