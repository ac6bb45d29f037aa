package revisions

import (
	"sync"
	"time"
)

// Recorder collects operations of many clients at once. It keeps every operation, so the caller
// must bound their number.
type Recorder struct {
	began time.Time

	mu struct {
		sync.Mutex
		clock      int64
		operations []*Operation
	}
}

// NewRecorder starts an empty history.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Pending is an operation that was called and has not returned.
type Pending struct {
	recorder  *Recorder
	operation *Operation
}

// Begin records a call. It must be called before the request is sent. The answer in o is ignored.
func (r *Recorder) Begin(o Operation) Pending {
	o.Outcome, o.Return, o.Found = Unknown, 0, nil
	o.Began = time.Since(r.began)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.clock++
	o.Call = r.mu.clock
	r.mu.operations = append(r.mu.operations, &o)
	return Pending{r, &o}
}

// end records the end of a call. It must be called after the answer was read.
func (p Pending) end(set func(*Operation)) {
	ended := time.Since(p.recorder.began)
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.recorder.mu.clock++
	p.operation.Return, p.operation.Ended = p.recorder.mu.clock, ended
	set(p.operation)
}

// Unknown records that the client did not learn the outcome.
func (p Pending) Unknown() { p.end(func(*Operation) {}) }

// Refused records that the operation certainly had no effect and never will have one.
func (p Pending) Refused() { p.end(func(o *Operation) { o.Outcome = Refused }) }

// Done records the answer. found has the pairs of each action of the branch that was taken.
func (p Pending) Done(succeeded bool, revision int64, found [][]Pair) {
	p.end(func(o *Operation) {
		o.Outcome, o.Succeeded, o.Revision, o.Found = Done, succeeded, revision, found
	})
}

// Operations returns a copy of the history so far, in the order of calls. Operations that have not
// returned have an unknown outcome.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Operation, len(r.mu.operations))
	for i, o := range r.mu.operations {
		all[i] = *o
	}
	return all
}
