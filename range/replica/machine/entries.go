package machine

import (
	"time"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// entries are what is proposed and not applied. Machine.Mu guards them.
type entries struct {
	// Building is the entry that the evaluation at work fills.
	Building *Entry
	// InFlight is what is proposed and not applied, oldest first.
	InFlight []*Entry
	// Sequence is the number of the latest proposal.
	Sequence uint64
	// Holding is the entry by which the partition splits, is frozen, or merges, from its evaluation
	// until its fate is known: nothing is evaluated meanwhile, and reads wait for it. While the
	// partition is frozen a standing one has that effect.
	Holding *Entry
}

// Find is the entry of a sequence that is in flight, or being filled; nil if there is none.
func (p *entries) Find(sequence uint64) *Entry {
	if sequence == 0 {
		return nil
	}
	if b := p.Building; b != nil && b.Sequence == sequence {
		return b
	}
	return p.Proposed(sequence)
}

// Proposed is the entry of a sequence that is in flight; nil if there is none.
func (p *entries) Proposed(sequence uint64) *Entry {
	for _, e := range p.InFlight {
		if e.Sequence == sequence {
			return e
		}
	}
	return nil
}

// Base is the sequence that the next proposal of a term builds on.
func (p *entries) Base(term uint64, applied *storage.Record) uint64 {
	if n := len(p.InFlight); n > 0 {
		return p.InFlight[n-1].Sequence
	}
	if applied.CommandTerm == term {
		return applied.Sequence
	}
	return 0
}

// RemoveFirst takes out the oldest entry in flight.
func (p *entries) RemoveFirst() {
	n := copy(p.InFlight, p.InFlight[1:])
	p.InFlight[n] = nil
	p.InFlight = p.InFlight[:n]
}

// LoadSpan is the span of user keys that an entry on its way loads, at the entry's lowest
// timestamp.
type LoadSpan struct{ First, Last string }

// In says whether it may have keys of a span, of which an empty end is that of the partition.
func (l *LoadSpan) In(start, end []byte) bool {
	return l != nil && Text(start) <= l.Last && (len(end) == 0 || l.First < Text(end))
}

// loading is the entry on its way that loads records; nil if there is none.
func (p *entries) loading() *Entry {
	if b := p.Building; b != nil && b.Load != nil {
		return b
	}
	for _, e := range p.InFlight {
		if e.Load != nil {
			return e
		}
	}
	return nil
}

// WaitsAlone says that an entry is on its way until whose fate is known nothing is evaluated.
func (p *entries) WaitsAlone() bool {
	if b := p.Building; b != nil && (b.Load != nil || b.Sole) {
		return true
	}
	for _, e := range p.InFlight {
		if e.Load != nil || e.Sole {
			return true
		}
	}
	return false
}

// LoadOf is the entry that loads a key at or below a timestamp; nil if there is none.
func (p *entries) LoadOf(key []byte, at hlc.Timestamp) *Entry {
	e := p.loading()
	if e == nil || at.Less(e.Lowest) || Text(key) < e.Load.First || e.Load.Last < Text(key) {
		return nil
	}
	return e
}

// Entry is an entry on its way, or being filled by an evaluation.
type Entry struct {
	Sequence uint64
	Term     uint64
	At       time.Time
	// Writes are the pending writes in it, in the order of evaluation. Guarded by Machine.Mu until
	// it is applied.
	Writes []*proposal.Write
	// Lowest is at or below the timestamps of all writes.
	Lowest hlc.Timestamp
	// Load is what it loads, at lowest; nil if it loads nothing. Guarded as writes are.
	Load *LoadSpan
	// Answers are sent when it has been applied.
	Answers []Answer
	// Waiters are reads that it holds up.
	Waiters []Waiter
	// Records are the transactions whose records are in it.
	Records []RecordName
	// Lets are volatile locks that end when it has been applied.
	Lets []*concurrency.Lock
	// Sole: nothing else is evaluated before its fate is known. Guarded as writes are.
	Sole bool
	// Effects: it is proposed even if nothing waits for it.
	Effects bool
	// Gathers: it is filled as long as there is no room for it, and no goroutine is at work on it.
	Gathers bool
	// Standing: it is no entry, and stands for the freeze of the partition.
	Standing bool
	// Right is by how much it changes the part that is to split off.
	Right proposal.Delta
}

// Waiter is a read that waits for an entry to be applied, or for locks.
type Waiter interface {
	// Asked is the read's request.
	Asked() *kvpb.Request
	// Resume goes on with the read: the entry is applied.
	Resume()
	// ResumeUnlocked goes on with the read: the locks that were in its way are not any more.
	ResumeUnlocked()
	// Refuse answers the read.
	Refuse(*kvpb.Response)
}

// OnlyOf says that nothing but a client waits for the answers.
func (p *Entry) OnlyOf(client uint64) bool {
	for i := range p.Answers {
		if a := &p.Answers[i]; a.Done != nil || a.Pending.Client != client {
			return false
		}
	}
	return len(p.Waiters) == 0
}

// Answer is a response that is ready, and may not be sent yet.
type Answer struct {
	Pending  config.Pending
	Command  *command.Command
	Response *kvpb.Response
	// Hold, if not zero, is what every clock must have passed before.
	Hold hlc.Timestamp
	// Done is set instead for a command of this package's own.
	Done func(error)
}

// RecordName names a record of a partition: two may have the same id, at different anchors.
type RecordName struct {
	id     txn.ID
	anchor string
}

func NameOf(of *txn.Info) RecordName { return RecordName{of.ID, string(of.Anchor)} }

// Text is a string of the same memory as b, which must not be changed as long as the string lives.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
