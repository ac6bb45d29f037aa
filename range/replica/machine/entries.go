package machine

import (
	"time"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// entries holds what is proposed and not applied. Machine.Mu guards it.
type entries struct {
	// Building is the entry that the running evaluation fills.
	Building *Entry
	// InFlight are the entries that are proposed and not applied, oldest first.
	InFlight []*Entry
	// Sequence is the number of the latest proposal.
	Sequence uint64
	// Holding is the entry that splits, freezes or merges the partition, from its evaluation until
	// its fate is known: nothing is evaluated meanwhile, and reads wait for it. While the partition
	// is frozen, a placeholder (Entry.Standing) has the same effect.
	Holding *Entry
}

// Find returns the entry with a sequence that is in flight or being filled; nil if there is none.
func (p *entries) Find(sequence uint64) *Entry {
	if sequence == 0 {
		return nil
	}
	if b := p.Building; b != nil && b.Sequence == sequence {
		return b
	}
	return p.Proposed(sequence)
}

// Proposed returns the entry with a sequence that is in flight; nil if there is none.
func (p *entries) Proposed(sequence uint64) *Entry {
	for _, e := range p.InFlight {
		if e.Sequence == sequence {
			return e
		}
	}
	return nil
}

// Base returns the sequence that the next proposal of a term builds on.
func (p *entries) Base(term uint64, applied *storage.Record) uint64 {
	if n := len(p.InFlight); n > 0 {
		return p.InFlight[n-1].Sequence
	}
	if applied.CommandTerm == term {
		return applied.Sequence
	}
	return 0
}

// RemoveFirst removes the oldest entry in flight.
func (p *entries) RemoveFirst() {
	n := copy(p.InFlight, p.InFlight[1:])
	p.InFlight[n] = nil
	p.InFlight = p.InFlight[:n]
}

// LoadSpan is the span of user keys that an entry on its way loads. Entry.Lowest is the timestamp.
type LoadSpan struct{ First, Last string }

// In reports whether the load may have keys of a span. An empty end stands for that of the
// partition.
func (l *LoadSpan) In(start, end []byte) bool {
	return l != nil && Text(start) <= l.Last && (len(end) == 0 || l.First < Text(end))
}

// loading returns the entry on its way that loads records; nil if there is none.
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

// WaitsAlone reports that nothing is evaluated until the fate of an entry on its way is known.
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

// LoadOf returns the entry that loads a key at or below a timestamp; nil if there is none.
func (p *entries) LoadOf(key []byte, at hlc.Timestamp) *Entry {
	e := p.loading()
	if e == nil || at.Less(e.Lowest) || Text(key) < e.Load.First || e.Load.Last < Text(key) {
		return nil
	}
	return e
}

// Entry is an entry on its way, or an entry that an evaluation fills.
type Entry struct {
	Sequence uint64
	Term     uint64
	EntryTimes
	// Writes are the pending writes of the entry, in the order of evaluation. Machine.Mu guards
	// them until the entry is applied.
	Writes []*proposal.Write
	// Lowest is a timestamp at or below those of all writes.
	Lowest hlc.Timestamp
	// Load is the span that the entry loads, at Lowest; nil if it loads nothing. Guarded like
	// Writes.
	Load *LoadSpan
	// Answers are sent when the entry has been applied.
	Answers []Answer
	// Waiters are reads that wait for the entry.
	Waiters []Waiter
	// Records names the transaction records in the entry.
	Records []RecordName
	// Lets are volatile locks that are released when the entry has been applied.
	Lets []*concurrency.Lock
	// Sole has nothing else evaluated before the fate of the entry is known. Guarded like Writes.
	Sole bool
	// Effects has the entry proposed even if nobody waits for it.
	Effects bool
	// Gathers is set while the entry takes in more writes because there is no room for it in
	// flight, and no goroutine works on it.
	Gathers bool
	// Standing marks a placeholder that stands for the freeze of the partition, and is no log
	// entry.
	Standing bool
	// Right is the change of statistics in the part that is to split off.
	Right proposal.Delta
}

// EntryTimes says how long an entry took from its evaluation to its application. Times that are not
// known are zero.
type EntryTimes struct {
	// At is when the entry was complete, and about to be proposed.
	At time.Time
	// Gathered is when the entry began to wait for room among the entries in flight. It may take in
	// more writes from then on.
	Gathered time.Time
	// Log are the times of the log, known when the entry is applied.
	Log group.Times
}

// Pass enters the times of an applied entry into the timing of one of its requests.
func (p *Entry) Pass(t *timing.Request) {
	if t == nil {
		return
	}
	t.EnterAt(timing.Latch, p.Gathered)
	if synced := p.Log.Synced; synced.IsZero() || !synced.Before(p.Log.Applying) {
		// A quorum had the entry before the leader's log: nobody waited for that.
		t.EnterAt(timing.Replicate, p.At)
	} else {
		t.EnterAt(timing.Log, p.At)
		t.EnterAt(timing.Sync, p.Log.Writing)
		t.EnterAt(timing.Replicate, synced)
	}
	t.EnterAt(timing.Apply, p.Log.Applying)
}

// Waiter is a read that waits for an entry to be applied, or for locks.
type Waiter interface {
	// Asked returns the read's request.
	Asked() *kvpb.Request
	// Resume continues the read after the entry is applied.
	Resume()
	// ResumeUnlocked continues the read after the locks in its way are released.
	ResumeUnlocked()
	// Refuse answers the read.
	Refuse(*kvpb.Response)
}

// OnlyOf reports that only one client waits for the answers.
func (p *Entry) OnlyOf(client uint64) bool {
	for i := range p.Answers {
		if a := &p.Answers[i]; a.Done != nil || a.Pending.Client != client {
			return false
		}
	}
	return len(p.Waiters) == 0
}

// Answer is a response that is ready, but may not be sent yet.
type Answer struct {
	Pending  config.Pending
	Command  *command.Command
	Response *kvpb.Response
	// Hold, if not zero, is a timestamp that every clock must have passed before the answer is
	// sent.
	Hold hlc.Timestamp
	// Done is set instead of a response for a command of the node itself.
	Done func(error)
}

// RecordName names a transaction record of a partition: two records at different anchors may have
// the same id.
type RecordName struct {
	id     txn.ID
	anchor string
}

func NameOf(of *txn.Info) RecordName { return RecordName{of.ID, string(of.Anchor)} }

// Text returns b as a string that shares its memory. b must not be changed while the string is in
// use.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
