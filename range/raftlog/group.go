package raftlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Group is the log of one group, as raft.Storage. Its methods may be called from any goroutine.
type Group struct {
	log *Log
	id  keys.PartitionID

	// The bounds of what the append worker has written last; after OpenGroup only that worker
	// touches them.
	written                  uint64
	writtenTerm, writtenVote uint64

	// applied returns the index, term and configuration that a snapshot taken now would have.
	applied func() Applied
	// forgotten is set by ForgetBeginning: the log is shown without its first entry.
	forgotten atomic.Bool

	mu struct {
		sync.Mutex
		hardState *raftpb.HardState
		truncated truncation
		last      uint64
		lastTerm  uint64
		// tail holds the entries (last-len(tail), last], without gaps.
		tail      []*raftpb.Entry
		tailBytes int
		// bytes estimates how many bytes the log holds, in memory and on disk.
		bytes int64
	}
}

var _ raft.Storage = (*Group)(nil)

// Applied describes what a state machine has applied.
type Applied struct {
	Index, Term uint64
	// Configuration is the configuration as of Index.
	Configuration *raftpb.ConfState
}

// ForgetBeginning shows the log without its first entry from now on, so that Raft sends a snapshot
// to an empty replica.
func (g *Group) ForgetBeginning() { g.forgotten.Store(true) }

// beginsLocked returns the first index that is shown.
func (g *Group) beginsLocked() uint64 {
	first := g.mu.truncated.index + 1
	if first == 1 && g.mu.last > 0 && g.forgotten.Load() {
		return 2
	}
	return first
}

// OpenGroup opens the log of a group that Create made. The applied index and term are those of the
// state machine. A log that ends below them (a crash between installing a snapshot and resetting
// the log) is reset to them. A log that begins above them has lost entries that the state never
// had, which is an error.
//
// The applied func is called when Raft opens the group, and whenever Raft wants to send a snapshot.
func (l *Log) OpenGroup(id Identity, applied func() Applied) (*Group, error) {
	g := &Group{log: l, id: id.Group, applied: applied}
	if err := g.load(); err != nil {
		return nil, fmt.Errorf("opening the log of group %s: %w", id.Group, err)
	}
	if err := g.reconcile(); err != nil {
		return nil, fmt.Errorf("opening the log of group %s: %w", id.Group, err)
	}
	g.written = g.mu.last
	g.writtenTerm, g.writtenVote = g.mu.hardState.GetTerm(), g.mu.hardState.GetVote()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, ErrClosed
	}
	if l.mu.groups[id.Group] != nil {
		return nil, fmt.Errorf("group %s is open already", id.Group)
	}
	l.mu.groups[id.Group] = g
	return g, nil
}

// CloseGroup forgets an open group; its log stays on disk. The group must have no append in flight.
func (l *Log) CloseGroup(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.groups[g.id] == g {
		delete(l.mu.groups, g.id)
	}
}

func (g *Group) get(kind byte, decode func([]byte) error) error {
	value, closer, err := g.log.db.Get(appendGroupKey(nil, g.id, kind))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	return decode(value)
}

func (g *Group) load() error {
	g.mu.hardState = &raftpb.HardState{}
	if err := g.get(kindHardState, func(b []byte) (err error) {
		g.mu.hardState, err = decodeHardState(b)
		return err
	}); err != nil {
		return fmt.Errorf("hard state: %w", err)
	}
	if err := g.get(kindTruncated, func(b []byte) (err error) {
		g.mu.truncated, err = decodeTruncation(b)
		return err
	}); err != nil {
		return fmt.Errorf("truncation: %w", err)
	}
	g.mu.last, g.mu.lastTerm = g.mu.truncated.index, g.mu.truncated.term
	it, err := g.log.db.NewIter(&pebble.IterOptions{
		LowerBound: appendEntryKey(nil, g.id, 0), UpperBound: appendGroupKey(nil, g.id,
			kindEntry+1)})
	if err != nil {
		return err
	}
	defer it.Close()
	if it.Last() {
		e, err := g.decodeAt(it)
		if err != nil {
			return err
		}
		if e.GetIndex() > g.mu.last {
			g.mu.last, g.mu.lastTerm = e.GetIndex(), e.GetTerm()
		}
		size := entryFootprint(e)
		if it.First() {
			// The size on disk is estimated from the first and the last entry; counting it would
			// mean reading all of it.
			if e, err = g.decodeAt(it); err != nil {
				return err
			}
			size = (size + entryFootprint(e)) / 2
		}
		g.mu.bytes = int64(size) * int64(g.mu.last-min(g.mu.last, g.mu.truncated.index))
	}
	return it.Error()
}

// reconcile makes the log consistent with the applied state.
func (g *Group) reconcile() error {
	applied := g.applied()
	index, term := applied.Index, applied.Term
	if index < g.mu.truncated.index {
		return fmt.Errorf("the state was applied up to %d, but the log begins behind %d: the "+
			"state database has lost data: %w",
			index, g.mu.truncated.index, ErrCorrupt)
	}
	reset := index > g.mu.last
	if !reset {
		have, err := g.termLocked(index)
		if err != nil {
			return err
		}
		reset = have != term && index > 0
	}
	if reset {
		batch := g.log.db.NewBatch()
		defer batch.Close()
		t := truncation{index, term}
		if err := batch.DeleteRange(appendEntryKey(nil, g.id, 0),
			appendGroupKey(nil, g.id, kindEntry+1), nil); err != nil {
			return err
		}
		if err := batch.Set(appendGroupKey(nil, g.id, kindTruncated), encodeTruncation(t),
			nil); err != nil {
			return err
		}
		if err := g.log.db.Commit(batch, true); err != nil {
			return err
		}
		g.mu.truncated, g.mu.last, g.mu.lastTerm = t, index, term
	}
	hs := g.mu.hardState
	if hs.GetTerm() < g.mu.lastTerm {
		// The vote belongs to an earlier term.
		t := g.mu.lastTerm
		hs.Term, hs.Vote = &t, nil
	}
	if hs.GetCommit() < index {
		// Applied entries were committed, even if the hard state does not say so yet.
		hs.Commit = &index
	}
	if hs.GetCommit() > g.mu.last {
		return fmt.Errorf("the hard state says that %d is committed, but the log ends at %d: %w",
			hs.GetCommit(), g.mu.last, ErrCorrupt)
	}
	return nil
}

// appended shows the entries of an append that has become durable.
func (g *Group) appended(a *Append) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.Snapshot.Index != 0 {
		g.mu.truncated = truncation{a.Snapshot.Index, a.Snapshot.Term}
		g.mu.last, g.mu.lastTerm = a.Snapshot.Index, a.Snapshot.Term
		g.mu.tail, g.mu.tailBytes, g.mu.bytes = nil, 0, 0
	}
	if n := len(a.Entries); n > 0 {
		first := a.Entries[0].GetIndex()
		if first <= g.mu.last {
			keep := max(0, len(g.mu.tail)-int(g.mu.last-first+1))
			for _, e := range g.mu.tail[keep:] {
				g.mu.tailBytes -= entryFootprint(e)
				g.mu.bytes -= int64(entryFootprint(e))
			}
			clear(g.mu.tail[keep:])
			g.mu.tail = g.mu.tail[:keep]
		}
		g.mu.tail = append(g.mu.tail, a.Entries...)
		for _, e := range a.Entries {
			g.mu.tailBytes += entryFootprint(e)
			g.mu.bytes += int64(entryFootprint(e))
		}
		g.mu.last, g.mu.lastTerm = a.Entries[n-1].GetIndex(), a.Entries[n-1].GetTerm()
	}
	if a.HardState != nil {
		g.mu.hardState = a.HardState
	}
	if invariants.Enabled {
		g.checkInvariantsLocked()
	}
}

// checkInvariantsLocked checks that the tail in memory is the end of the log.
func (g *Group) checkInvariantsLocked() {
	n := len(g.mu.tail)
	invariants.Check(g.mu.last >= g.mu.truncated.index && g.mu.lastTerm >= g.mu.truncated.term &&
		uint64(n) <= g.mu.last-g.mu.truncated.index,
		"group %s: a log that begins behind entry %d ends at %d, with %d entries in memory", g.id,
		g.mu.truncated.index, g.mu.last, n)
	for i, bytes := 0, 0; i < n && n <= 4*invariants.Small; i++ {
		e := g.mu.tail[i]
		invariants.Check(e.GetIndex() == g.mu.last-uint64(n-1-i),
			"group %s: entry %d is in memory in the place of entry %d", g.id, e.GetIndex(),
			g.mu.last-uint64(n-1-i))
		bytes += entryFootprint(e)
		invariants.Check(i < n-1 || bytes == g.mu.tailBytes && e.GetTerm() == g.mu.lastTerm,
			"group %s: %d bytes are in memory, and %d are counted; the last entry is of term %d, not %d",
			g.id, bytes, g.mu.tailBytes, e.GetTerm(), g.mu.lastTerm)
	}
}

func entryFootprint(e *raftpb.Entry) int { return 96 + len(e.GetData()) }

// Release drops entries at or below the applied index from memory: all of them if idle, otherwise
// enough to keep the tail within its bound.
func (g *Group) Release(applied uint64, idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !idle && g.mu.tailBytes <= g.log.options.TailBytes {
		return
	}
	goal := g.log.options.TailBytes / 2
	if idle {
		goal = 0
	}
	n := 0
	for n < len(g.mu.tail) && g.mu.tailBytes > goal && g.mu.tail[n].GetIndex() <= applied {
		g.mu.tailBytes -= entryFootprint(g.mu.tail[n])
		n++
	}
	if n == 0 {
		return
	}
	if n == len(g.mu.tail) {
		g.mu.tail = nil
		return
	}
	// Move down instead of slicing, so that the array does not grow for ever; Raft holds copies of
	// sub-slices.
	rest := make([]*raftpb.Entry, len(g.mu.tail)-n, 2*(len(g.mu.tail)-n))
	copy(rest, g.mu.tail[n:])
	g.mu.tail = rest
}

// Extent returns the first and last index of the log and an estimate of its bytes.
func (g *Group) Extent() (first, last uint64, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.truncated.index + 1, g.mu.last, g.mu.bytes
}

// InitialState implements raft.Storage.
func (g *Group) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.hardState, g.applied().Configuration, nil
}

// FirstIndex implements raft.Storage.
func (g *Group) FirstIndex() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.beginsLocked(), nil
}

// LastIndex implements raft.Storage.
func (g *Group) LastIndex() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.last, nil
}

// Term implements raft.Storage.
func (g *Group) Term(index uint64) (uint64, error) {
	g.mu.Lock()
	term, err, known := g.knownTermLocked(index)
	g.mu.Unlock()
	if known {
		return term, err
	}
	return g.readTerm(index)
}

func (g *Group) termLocked(index uint64) (uint64, error) {
	if term, err, known := g.knownTermLocked(index); known {
		return term, err
	}
	return g.readTerm(index)
}

// knownTermLocked answers from memory if it can.
func (g *Group) knownTermLocked(index uint64) (term uint64, err error, known bool) {
	switch {
	case index < g.mu.truncated.index:
		return 0, raft.ErrCompacted, true
	case index == g.mu.truncated.index:
		return g.mu.truncated.term, nil, true
	case index == g.mu.last:
		return g.mu.lastTerm, nil, true
	case index > g.mu.last:
		return 0, raft.ErrUnavailable, true
	}
	if first := g.mu.last - uint64(len(g.mu.tail)) + 1; index >= first {
		return g.mu.tail[index-first].GetTerm(), nil, true
	}
	return 0, nil, false
}

func (g *Group) readTerm(index uint64) (uint64, error) {
	entries, err := g.readEntries(index, index+1, 0)
	if err != nil {
		return 0, err
	}
	return entries[0].GetTerm(), nil
}

// Entries implements raft.Storage. The entries are shared and never changed.
func (g *Group) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	g.mu.Lock()
	if lo < g.beginsLocked() {
		g.mu.Unlock()
		return nil, raft.ErrCompacted
	}
	if hi > g.mu.last+1 {
		g.mu.Unlock()
		return nil, raft.ErrUnavailable
	}
	tailFirst := g.mu.last - uint64(len(g.mu.tail)) + 1
	var fromTail []*raftpb.Entry
	if hi > tailFirst {
		fromTail = append(fromTail, g.mu.tail[max(lo, tailFirst)-tailFirst:hi-tailFirst]...)
	}
	g.mu.Unlock()

	if lo >= tailFirst {
		return limitSize(fromTail, maxSize), nil
	}
	read, err := g.readEntries(lo, min(hi, tailFirst), maxSize)
	if err != nil {
		return nil, err
	}
	if uint64(len(read)) < min(hi, tailFirst)-lo {
		return read, nil // the limit was met
	}
	return limitSize(append(read, fromTail...), maxSize), nil
}

func limitSize(entries []*raftpb.Entry, maxSize uint64) []*raftpb.Entry {
	var size uint64
	for i, e := range entries {
		size += uint64(entryFootprint(e))
		if size > maxSize && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

func (g *Group) decodeAt(it *pebble.Iterator) (*raftpb.Entry, error) {
	key := it.Key()
	if len(key) != entryKeyLength {
		return nil, fmt.Errorf("entry key %x: %w", key, ErrCorrupt)
	}
	var index uint64
	for _, b := range key[entryKeyLength-8:] {
		index = index<<8 | uint64(b)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	e, err := decodeEntry(value, index)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	return e, nil
}

// readEntries reads [lo, hi) from disk, at least one entry and then up to maxSize.
func (g *Group) readEntries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	g.log.metrics.diskReads.Inc()
	it, err := g.log.db.NewIter(&pebble.IterOptions{LowerBound: appendEntryKey(nil, g.id, lo),
		UpperBound: appendEntryKey(nil, g.id, hi)})
	if err != nil {
		return nil, fmt.Errorf("group %s: reading entries: %w", g.id, err)
	}
	defer it.Close()
	var entries []*raftpb.Entry
	var size uint64
	for ok := it.First(); ok; ok = it.Next() {
		e, err := g.decodeAt(it)
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", g.id, err)
		}
		if want := lo + uint64(len(entries)); e.GetIndex() != want {
			return nil, g.missing(want)
		}
		size += uint64(entryFootprint(e))
		if size > maxSize && len(entries) > 0 {
			return entries, nil
		}
		entries = append(entries, e)
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("group %s: reading entries: %w", g.id, err)
	}
	if want := lo + uint64(len(entries)); want != hi {
		return nil, g.missing(want)
	}
	return entries, nil
}

// missing tells an entry that was truncated in the meantime from one that was lost.
func (g *Group) missing(index uint64) error {
	if first, _ := g.FirstIndex(); index < first {
		return raft.ErrCompacted
	}
	return fmt.Errorf("group %s: entry %d is missing: %w", g.id, index, ErrCorrupt)
}

// Snapshot implements raft.Storage. It carries no data: the host streams the state beside Raft's
// messages.
func (g *Group) Snapshot() (*raftpb.Snapshot, error) {
	a := g.applied()
	if a.Index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &a.Index, Term: &a.Term,
		ConfState: a.Configuration}}, nil
}

// BytesAbove estimates how many bytes the entries above an index hold.
func (g *Group) BytesAbove(index uint64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if index >= g.mu.last {
		return 0
	}
	above := int64(0)
	for i := len(g.mu.tail) - 1; i >= 0 && g.mu.tail[i].GetIndex() > index; i-- {
		above += int64(entryFootprint(g.mu.tail[i]))
	}
	// Entries that are not in memory count with the average size.
	tailFirst := g.mu.last - uint64(len(g.mu.tail)) + 1
	if from := max(index, g.mu.truncated.index) + 1; from < tailFirst {
		above += g.mu.bytes / int64(g.mu.last-g.mu.truncated.index) * int64(tailFirst-from)
	}
	return above
}
