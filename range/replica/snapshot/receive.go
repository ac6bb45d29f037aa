package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/spans"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// maxTableBytes is the approximate size of a table of a snapshot.
const maxTableBytes = 64 << 20

// Owner is the replica that receives snapshots.
type Owner interface {
	ID() keys.PartitionID
	// Descriptor returns the replica's present descriptor.
	Descriptor() *clusterpb.Partition
}

// Receiver receives the snapshots of one replica. Its methods may be called from any goroutine.
type Receiver struct {
	owner Owner
	state *engine.State
	spans *spans.Table
	// full reports that the disk is full; nil: the disk is never full.
	full func() bool
	// TableBytes is the approximate size of a table.
	TableBytes uint64
	space      spacePause
}

// NewReceiver returns a receiver. full may be nil; tableBytes is the approximate size of a table, 0
// for the default.
func NewReceiver(owner Owner, state *engine.State, table *spans.Table, full func() bool,
	tableBytes uint64) *Receiver {
	return &Receiver{owner: owner, state: state, spans: table, full: full,
		TableBytes: cmp.Or(tableBytes, maxTableBytes)}
}

// Staged is a received snapshot: tables in the engine's directory that nothing refers to yet. After
// a crash the next start removes them. The owner either calls Discard, or ingests the tables and
// calls Unclaim.
type Staged struct {
	receiver   *Receiver
	paths      []string
	Applied    storage.Record
	Descriptor *clusterpb.Partition
	claim      *spans.Claim
}

// Configuration implements group.Configured.
func (s *Staged) Configuration() group.Configuration { return group.ConfigurationOf(s.Descriptor) }

// Ingest makes the tables a part of the state, in one step.
func (s *Staged) Ingest() error {
	return s.receiver.state.Ingest(context.Background(), s.paths)
}

// DiscardTables removes the tables.
func (s *Staged) DiscardTables() { s.receiver.state.DiscardTables(s.paths) }

// Unclaim ends the claim of the span.
func (s *Staged) Unclaim() { s.receiver.spans.Unclaim(s.claim) }

// Discard removes the tables, and ends the claim.
func (s *Staged) Discard() {
	s.DiscardTables()
	s.Unclaim()
}

// Receive reads and verifies a snapshot, and writes it to tables, which no reader sees yet. index
// and term are those that were announced.
func (r *Receiver) Receive(ctx context.Context, index, term uint64, in io.Reader) (*Staged,
	error) {
	free := r.state.FreeBytes()
	if err := r.space.check(time.Now(), free, r.state.MinFreeBytes()); err != nil {
		return nil, err
	}
	s := &stager{Staged: Staged{receiver: r}, id: r.owner.ID(), in: newReader(in), index: index,
		term: term}
	err := s.stage(ctx)
	if err == nil || s.in.count > 0 { // otherwise nothing was written
		r.space.ended(time.Now(), free, err)
	}
	if err != nil {
		s.abort()
		return nil, err
	}
	staged := s.Staged // the rest of s was for the reading
	return &staged, nil
}

// stager is the state of a Receive.
type stager struct {
	Staged
	id          keys.PartitionID
	in          *reader
	index, term uint64
	// parts are the spans of the partition. The second and third are known when the first is read.
	parts [3]keys.Span

	// table is being written, for parts[current], from the key first.
	table   *engine.TableWriter
	from    []byte
	current int

	hasApplied bool
	// versions counts the versions, to compare with the count that the snapshot claims.
	versions storage.Counter
	highest  hlc.Timestamp
}

func (s *stager) stage(ctx context.Context) error {
	h, err := s.in.header()
	if err != nil {
		return err
	}
	if h != (header{s.id, s.index, s.term}) {
		return fmt.Errorf("%w: it is of partition %s at index %d of term %d, "+
			"announced was %s at %d of %d",
			ErrMalformed, h.partition, h.index, h.term, s.id, s.index, s.term)
	}
	s.parts[0] = keys.LocalSpan(s.id)
	if err := s.begin(0); err != nil {
		return err
	}
	for {
		if s.in.count%256 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if s.receiver.full != nil && s.receiver.full() {
				return engine.ErrNoRoom // what is left is for logs and for what makes room
			}
		}
		ok, err := s.in.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := s.record(s.in.key, s.in.value); err != nil {
			return err
		}
	}
	for s.current < len(s.parts)-1 {
		if err := s.begin(s.current + 1); err != nil {
			return err
		}
	}
	if err := s.finishTable(s.parts[s.current].End); err != nil {
		return err
	}
	return s.verify()
}

// begin finishes the current table and starts one for a span.
func (s *stager) begin(span int) error {
	if err := s.finishTable(s.parts[s.current].End); err != nil {
		return err
	}
	s.current = span
	if span == 1 {
		if err := s.takeSpan(); err != nil {
			return err
		}
	}
	return s.beginTable(s.parts[span].Start)
}

// beginTable starts a table for keys from a key on.
func (s *stager) beginTable(from []byte) (err error) {
	s.from = append(s.from[:0], from...)
	s.table, err = s.receiver.state.NewSpareTableWriter()
	return err
}

// takeSpan takes the partition's span from the snapshot's descriptor, and claims it.
func (s *stager) takeSpan() error {
	if s.Descriptor == nil {
		return fmt.Errorf("%w: it lacks the descriptor", ErrMalformed)
	}
	span := keys.PartitionSpan(s.Descriptor)
	// Splits and merges may have moved its end, but not its start.
	if now := s.receiver.owner.Descriptor(); !storage.IsEmpty(now) && (!bytes.Equal(now.Start,
		s.Descriptor.Start) ||
		now.Generation >= s.Descriptor.Generation && !bytes.Equal(now.End, s.Descriptor.End)) {
		return fmt.Errorf("%w: its span %s cannot come of this replica's, %s", ErrMalformed, span,
			keys.PartitionSpan(now))
	}
	claim, err := s.receiver.spans.Claim(s.Descriptor)
	if err != nil {
		return err
	}
	s.claim, s.parts = claim, storage.Spans(s.id, span)
	return nil
}

// finishTable finishes the current table, if there is one. The table deletes all older keys up to
// end.
//
// INVARIANT: the tables of a snapshot delete all that was in its spans, so readers see either the
// old or the new state. An excise would be cheaper, but readers would see neither for a moment
// (engine.State.ExciseAll).
func (s *stager) finishTable(end []byte) error {
	if s.table == nil {
		return nil
	}
	if err := s.table.DeleteRange(s.from, end); err != nil {
		return err
	}
	path, err := s.table.Finish()
	s.table = nil
	if err != nil {
		return err
	}
	s.paths = append(s.paths, path)
	return nil
}

func (s *stager) abort() {
	if s.table != nil {
		s.table.Abort()
	}
	s.receiver.state.DiscardTables(s.paths)
	s.receiver.spans.Unclaim(s.claim)
}

func (s *stager) record(key, value []byte) error {
	if err := storage.CheckKey(key); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if s.in.count > 1 && storage.CompareKeys(s.in.last, key) >= 0 {
		return fmt.Errorf("%w: %s does not follow %s", ErrMalformed, keys.PrettyState(key),
			keys.PrettyState(s.in.last))
	}
	for !storage.Contains(s.parts[s.current], key) {
		if s.current == len(s.parts)-1 {
			return fmt.Errorf("%w: %s does not belong to the partition",
				ErrMalformed, keys.PrettyState(key))
		}
		if err := s.begin(s.current + 1); err != nil {
			return err
		}
	}
	var err error
	switch s.current {
	case 0:
		err = s.local(key, value)
	case 1:
		err = s.anchored(key, value)
	case len(s.parts) - 1:
		if err = s.version(key, value); err != nil {
			break
		}
		if s.table.Size() > s.receiver.TableBytes {
			if err = s.finishTable(key); err == nil {
				err = s.beginTable(key)
			}
		}
	}
	if err != nil {
		return err
	}
	return s.table.Set(key, value)
}

// local takes a record of the partition's local span.
func (s *stager) local(key, value []byte) (err error) {
	switch {
	case bytes.Equal(key, keys.LocalKey(s.id, keys.SuffixApplied)):
		if s.Applied, err = storage.DecodeApplied(value); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		s.hasApplied = true
	case bytes.Equal(key, keys.LocalKey(s.id, keys.SuffixDescriptor)):
		if s.Descriptor, err = storage.DecodeDescriptor(s.id, value); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	default:
		return fmt.Errorf("%w: it has %s, which this server does not know", ErrMalformed,
			keys.PrettyState(key))
	}
	return nil
}

// anchored checks a lock or a record of a transaction.
func (s *stager) anchored(key, value []byte) error {
	_, suffix, err := keys.DecodeAnchorKey(key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch of, _ := txn.Classify(suffix); of {
	case txn.AnchoredLock:
		var l txn.Lock
		if l, err = txn.DecodeLock(value); err == nil {
			s.highest = hlc.Max(s.highest, l.Prepared)
		}
	case txn.AnchoredRecord:
		_, err = txn.DecodeRecord(value)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, keys.PrettyState(key), err)
	}
	return nil
}

// version counts a version.
func (s *stager) version(key, value []byte) error {
	if err := s.versions.Add(key, value); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	_, ts, _ := keys.DecodeVersioned(key) // checked just before
	s.highest = hlc.Max(s.highest, ts)
	return nil
}

// verify compares the received records with the statistics that the snapshot claims.
func (s *stager) verify() error {
	switch {
	case !s.hasApplied || s.Descriptor == nil:
		return fmt.Errorf("%w: it lacks the applied record or the descriptor", ErrMalformed)
	case s.Applied.Index != s.index || s.Applied.Term != s.term:
		return fmt.Errorf("%w: its applied record is of index %d, term %d",
			ErrMalformed, s.Applied.Index, s.Applied.Term)
	case s.Applied.Stats != s.versions.Stats:
		return fmt.Errorf("%w: it holds %+v and says %+v", ErrMalformed, s.versions.Stats,
			s.Applied.Stats)
	case s.Applied.Highest.Less(s.highest):
		return fmt.Errorf("%w: it has a version or lock at %s, above its highest timestamp %s",
			ErrMalformed, s.highest, s.Applied.Highest)
	}
	return nil
}
