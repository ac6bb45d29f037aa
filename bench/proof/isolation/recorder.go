package isolation

import (
	"sync"
	"time"
)

// Recorder collects transactions of many clients at once. It keeps all of them, so the caller must
// bound their number.
type Recorder struct {
	begin time.Time

	mu struct {
		sync.Mutex
		last         time.Duration
		transactions []*Transaction
	}
}

// NewRecorder starts an empty history.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// nowLocked gives every event a later time than the event before, even if the clock is coarse or
// stands still.
func (r *Recorder) nowLocked() time.Duration {
	r.mu.last = max(time.Since(r.begin), r.mu.last+1)
	return r.mu.last
}

// Pending is a transaction that has begun. Record a write before its request is sent, and a read
// when its answer has arrived. Nothing may be recorded after Committed, Aborted or Unknown.
type Pending struct {
	recorder    *Recorder
	transaction *Transaction
}

// Begin starts a transaction. It must be called before the transaction's first request is sent.
func (r *Recorder) Begin(session int) Pending {
	t := &Transaction{Session: session}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Begin = r.nowLocked()
	r.mu.transactions = append(r.mu.transactions, t)
	return Pending{recorder: r, transaction: t}
}

func (p Pending) record(o Operation) {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.transaction.Operations = append(p.transaction.Operations, o)
}

// Append records that the transaction adds a value to a list.
func (p Pending) Append(key, value string) {
	p.record(Operation{Kind: Append, Key: key,
		Value: value})
}

// ReadList records the elements that a read of a list found. The recorder keeps the slice.
func (p Pending) ReadList(key string, values []string) {
	p.record(Operation{Kind: ReadList, Key: key, List: values})
}

// Write records that the transaction writes a register.
func (p Pending) Write(key, value string) {
	p.record(Operation{Kind: Write, Key: key,
		Value: value})
}

// Read records the value that a read of a register found.
func (p Pending) Read(key, value string) { p.record(Operation{Kind: Read, Key: key, Value: value}) }

// ReadAbsent records that a register was not there.
func (p Pending) ReadAbsent(key string) { p.record(Operation{Kind: Read, Key: key, Absent: true}) }

// Snapshot marks a read-only transaction at an explicit past timestamp.
func (p Pending) Snapshot(at Timestamp) { p.change(func(t *Transaction) { t.Snapshot = at }) }

// Final marks a read of everything after the load.
func (p Pending) Final() { p.change(func(t *Transaction) { t.Final = true }) }

func (p Pending) change(set func(*Transaction)) {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	set(p.transaction)
}

func (p Pending) end(outcome Outcome, commit Timestamp) {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	p.transaction.End = p.recorder.nowLocked()
	p.transaction.Outcome, p.transaction.Commit = outcome, commit
}

// Committed ends a transaction that took effect. commit is zero if the database does not report
// timestamps.
func (p Pending) Committed(commit Timestamp) { p.end(Committed, commit) }

// Aborted ends a transaction that certainly had no effect and never will.
func (p Pending) Aborted() { p.end(Aborted, Timestamp{}) }

// Unknown ends a transaction whose client gave up, or was told that the outcome is unknown.
func (p Pending) Unknown() { p.end(Unknown, Timestamp{}) }

// Len is the number of transactions that were begun.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.transactions)
}

// History returns a copy of the recorded transactions, in the order of their begins. Transactions
// that have not ended have an unknown outcome.
func (r *Recorder) History() []Transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	history := make([]Transaction, len(r.mu.transactions))
	for i, t := range r.mu.transactions {
		history[i] = *t
		history[i].Operations = append([]Operation(nil), t.Operations...)
	}
	return history
}
