package replica

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

// maxTableBytes is about how large a table of a snapshot gets.
const maxTableBytes = 64 << 20

// staged is a received snapshot: tables in the engine's directory that nothing refers to yet. After
// a crash the next start removes them.
type staged struct {
	r          *Replica
	paths      []string
	applied    storage.Record
	descriptor *clusterpb.Partition
	claim      *spans.Claim
	// taken are the partitions from which the installation has taken over.
	taken []*clusterpb.Partition
}

var _ group.Staged = (*staged)(nil)

// StageSnapshot reads and verifies a snapshot, and writes it to tables. Nothing of it shows before
// Install. It runs beside Apply.
func (r *Replica) StageSnapshot(ctx context.Context, index, term uint64,
	in io.Reader) (group.Staged, error) {
	if !r.enter() {
		return nil, ErrClosed
	}
	defer r.exit()
	free := r.state.FreeBytes()
	if err := r.snapshotRoom.check(time.Now(), free, r.state.MinFreeBytes()); err != nil {
		return nil, err
	}
	s := &stager{r: r, in: newSnapshotReader(in), index: index, term: term}
	err := s.stage(ctx)
	if err == nil || s.in.count > 0 { // otherwise nothing was written
		r.snapshotRoom.ended(time.Now(), free, err)
	}
	if err != nil {
		s.abort()
		return nil, err
	}
	return &staged{r: r, paths: s.paths, applied: s.applied, descriptor: s.descriptor,
		claim: s.claim}, nil
}

// stager is the work of StageSnapshot.
type stager struct {
	r           *Replica
	in          *snapshotReader
	index, term uint64
	spans       [3]keys.Span
	claim       *spans.Claim

	// table is being written, for spans[current], from a key on.
	table   *engine.TableWriter
	from    []byte
	current int
	paths   []string

	applied    storage.Record
	hasApplied bool
	descriptor *clusterpb.Partition
	// versions are counted, and compared with what the snapshot claims.
	versions storage.Counter
	highest  hlc.Timestamp
}

func (s *stager) stage(ctx context.Context) error {
	h, err := s.in.header()
	if err != nil {
		return err
	}
	if h != (snapshotHeader{s.r.id, s.index, s.term}) {
		return fmt.Errorf("%w: it is of partition %s at index %d of term %d, "+
			"announced was %s at %d of %d",
			errSnapshot, h.partition, h.index, h.term, s.r.id, s.index, s.term)
	}
	// Which the other two spans are is in the first one.
	s.spans[0] = keys.LocalSpan(s.r.id)
	if err := s.begin(0); err != nil {
		return err
	}
	for {
		if s.in.count%256 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if s.r.node.DiskFull != nil && s.r.node.DiskFull() {
				return engine.ErrNoRoom // what is left of it is for logs, and for what makes room
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
	for s.current < len(s.spans)-1 {
		if err := s.begin(s.current + 1); err != nil {
			return err
		}
	}
	if err := s.finishTable(s.spans[s.current].End); err != nil {
		return err
	}
	return s.verify()
}

// begin finishes the table at work and starts one for a span.
func (s *stager) begin(span int) error {
	if err := s.finishTable(s.spans[s.current].End); err != nil {
		return err
	}
	s.current = span
	if span == 1 {
		if err := s.takeSpan(); err != nil {
			return err
		}
	}
	return s.beginTable(s.spans[span].Start)
}

// beginTable starts a table for keys from one on.
func (s *stager) beginTable(from []byte) (err error) {
	s.from = append(s.from[:0], from...)
	s.table, err = s.r.state.NewSpareTableWriter()
	return err
}

// takeSpan takes the partition's span from the snapshot's descriptor, and claims it.
func (s *stager) takeSpan() error {
	if s.descriptor == nil {
		return fmt.Errorf("%w: it lacks the descriptor", errSnapshot)
	}
	span := keys.PartitionSpan(s.descriptor)
	// It may have become narrower by splits, and wider by merges, but it begins where it did.
	if now := s.r.Descriptor(); !storage.IsEmpty(now) && (!bytes.Equal(now.Start, s.descriptor.Start) ||
		now.Generation >= s.descriptor.Generation && !bytes.Equal(now.End, s.descriptor.End)) {
		return fmt.Errorf("%w: its span %s cannot come of this replica's, %s", errSnapshot, span,
			keys.PartitionSpan(now))
	}
	claim, err := s.r.node.Spans.Claim(s.descriptor)
	if err != nil {
		return err
	}
	s.claim, s.spans = claim, storage.Spans(s.r.id, span)
	return nil
}

// finishTable finishes the table at work, if there is one: it deletes what was there up to a key.
//
// INVARIANT: the tables of a snapshot delete all that was in its spans, and so readers see what was
// there or what comes. An excise would be cheaper, but shows neither for a moment
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
	s.r.state.DiscardTables(s.paths)
	s.r.node.Spans.Unclaim(s.claim)
}

func (s *stager) record(key, value []byte) error {
	if err := storage.CheckKey(key); err != nil {
		return fmt.Errorf("%w: %w", errSnapshot, err)
	}
	if s.in.count > 1 && storage.CompareKeys(s.in.last, key) >= 0 {
		return fmt.Errorf("%w: %s does not follow %s", errSnapshot, keys.PrettyState(key),
			keys.PrettyState(s.in.last))
	}
	for !storage.Contains(s.spans[s.current], key) {
		if s.current == len(s.spans)-1 {
			return fmt.Errorf("%w: %s does not belong to the partition",
				errSnapshot, keys.PrettyState(key))
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
	case len(s.spans) - 1:
		if err = s.version(key, value); err != nil {
			break
		}
		if s.table.Size() > cmp.Or(s.r.node.hooks.tableBytes, maxTableBytes) {
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

// local takes what the partition knows about itself.
func (s *stager) local(key, value []byte) (err error) {
	switch {
	case bytes.Equal(key, keys.LocalKey(s.r.id, keys.SuffixApplied)):
		if s.applied, err = storage.DecodeApplied(value); err != nil {
			return fmt.Errorf("%w: %w", errSnapshot, err)
		}
		s.hasApplied = true
	case bytes.Equal(key, keys.LocalKey(s.r.id, keys.SuffixDescriptor)):
		if s.descriptor, err = storage.DecodeDescriptor(s.r.id, value); err != nil {
			return fmt.Errorf("%w: %w", errSnapshot, err)
		}
	default:
		return fmt.Errorf("%w: it has %s, which this server does not know", errSnapshot,
			keys.PrettyState(key))
	}
	return nil
}

// anchored checks what belongs to a transaction.
func (s *stager) anchored(key, value []byte) error {
	_, suffix, err := keys.DecodeAnchorKey(key)
	if err != nil {
		return fmt.Errorf("%w: %w", errSnapshot, err)
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
		return fmt.Errorf("%w: %s: %w", errSnapshot, keys.PrettyState(key), err)
	}
	return nil
}

// version counts a version.
func (s *stager) version(key, value []byte) error {
	if err := s.versions.Add(key, value); err != nil {
		return fmt.Errorf("%w: %w", errSnapshot, err)
	}
	_, ts, _ := keys.DecodeVersioned(key) // which has just been checked
	s.highest = hlc.Max(s.highest, ts)
	return nil
}

// verify compares what came with what it says of itself.
func (s *stager) verify() error {
	switch {
	case !s.hasApplied || s.descriptor == nil:
		return fmt.Errorf("%w: it lacks the applied record or the descriptor", errSnapshot)
	case s.applied.Index != s.index || s.applied.Term != s.term:
		return fmt.Errorf("%w: its applied record is of index %d, term %d",
			errSnapshot, s.applied.Index, s.applied.Term)
	case s.applied.Stats != s.versions.Stats:
		return fmt.Errorf("%w: it holds %+v and says %+v", errSnapshot, s.versions.Stats,
			s.applied.Stats)
	case s.applied.Highest.Less(s.highest):
		return fmt.Errorf("%w: it has a version or lock at %s, above its highest timestamp %s",
			errSnapshot, s.highest, s.applied.Highest)
	}
	return nil
}
