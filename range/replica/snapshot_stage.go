package replica

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// maxTableBytes is about how large a table of a snapshot gets.
const maxTableBytes = 64 << 20

// errSnapshot is what every complaint about a snapshot's content wraps.
var errSnapshot = errors.New("malformed snapshot")

// snapshotReader reads a snapshot's records. All lengths are checked before memory is taken for
// them.
type snapshotReader struct {
	r     *bufio.Reader
	sum   uint32
	count uint64
	last  []byte
	key   []byte
	value []byte
}

// snapshotHeader is what a snapshot says of itself.
type snapshotHeader struct {
	partition   keys.PartitionID
	index, term uint64
}

func newSnapshotReader(r io.Reader) *snapshotReader {
	return &snapshotReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// cut turns the end of the stream, where there should be more, into an error that says so.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", errSnapshot)
	}
	return err
}

func (s *snapshotReader) full(b []byte) error {
	if _, err := io.ReadFull(s.r, b); err != nil {
		return cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, b)
	return nil
}

// ReadByte is for binary.ReadUvarint.
func (s *snapshotReader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, cut(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, []byte{b})
	return b, nil
}

func (s *snapshotReader) header() (h snapshotHeader, err error) {
	var b [len(snapshotMagic) + 1 + 24]byte
	if err := s.full(b[:]); err != nil {
		return h, err
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		return h, fmt.Errorf("%w: it does not begin like one", errSnapshot)
	}
	if v := b[len(snapshotMagic)]; v != snapshotVersion {
		return h, fmt.Errorf("%w: version %d, this server understands %d", errSnapshot, v,
			snapshotVersion)
	}
	rest := b[len(snapshotMagic)+1:]
	return snapshotHeader{
		keys.PartitionID(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint64(rest[8:]),
		binary.BigEndian.Uint64(rest[16:]),
	}, nil
}

// next reads a record into key and value, which are valid until the next call. ok is false at the
// end, when the sums were right.
func (s *snapshotReader) next() (ok bool, err error) {
	keyLength, err := binary.ReadUvarint(s)
	if err != nil {
		return false, err
	}
	if keyLength == 0 {
		return false, s.trailer()
	}
	valueLength, err := binary.ReadUvarint(s)
	if err != nil {
		return false, err
	}
	if keyLength > maxSnapshotKey || valueLength > maxSnapshotValue {
		return false, fmt.Errorf("%w: a record of %d and %d bytes", errSnapshot, keyLength, valueLength)
	}
	s.last, s.key = s.key, s.last
	if s.key, err = s.take(s.key, keyLength); err != nil {
		return false, err
	}
	if s.value, err = s.take(s.value, valueLength); err != nil {
		return false, err
	}
	s.count++
	return true, nil
}

func (s *snapshotReader) take(into []byte, n uint64) ([]byte, error) {
	if uint64(cap(into)) < n {
		into = make([]byte, n)
	}
	into = into[:n]
	return into, s.full(into)
}

func (s *snapshotReader) trailer() error {
	var b [8]byte
	if err := s.full(b[:]); err != nil {
		return err
	}
	want := s.sum
	var sum [4]byte
	if err := s.full(sum[:]); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(b[:]); n != s.count {
		return fmt.Errorf("%w: it has %d records and says %d", errSnapshot, s.count, n)
	}
	if binary.BigEndian.Uint32(sum[:]) != want {
		return fmt.Errorf("%w: its sum is wrong; it was damaged on the way", errSnapshot)
	}
	if _, err := s.r.ReadByte(); err == nil {
		return fmt.Errorf("%w: there is something behind its end", errSnapshot)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// staged is a received snapshot: tables in the engine's directory that nothing refers to yet. After
// a crash the next start removes them.
type staged struct {
	r          *Replica
	paths      []string
	applied    appliedRecord
	descriptor *clusterpb.Partition
	claim      *spanClaim
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
	s := &stager{r: r, in: newSnapshotReader(in), index: index, term: term}
	if err := s.stage(ctx); err != nil {
		s.abort()
		return nil, fmt.Errorf("receiving a snapshot of partition %s: %w", r.id, err)
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
	claim       *spanClaim

	// table is being written, for spans[current], from a key on.
	table   *engine.TableWriter
	from    []byte
	current int
	paths   []string

	applied    appliedRecord
	hasApplied bool
	descriptor *clusterpb.Partition
	// versions are counted, and compared with what the snapshot claims.
	versions versionCounter
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
	if now := s.r.Descriptor(); !isEmpty(now) && (!bytes.Equal(now.Start, s.descriptor.Start) ||
		now.Generation >= s.descriptor.Generation && !bytes.Equal(now.End, s.descriptor.End)) {
		return fmt.Errorf("%w: its span %s cannot come of this replica's, %s", errSnapshot, span,
			keys.PartitionSpan(now))
	}
	claim, err := s.r.node.spans.claim(s.descriptor)
	if err != nil {
		return err
	}
	s.claim, s.spans = claim, replicatedSpans(s.r.id, span)
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
	s.r.node.unclaim(s.claim)
}

func (s *stager) record(key, value []byte) error {
	if err := checkStateKey(key); err != nil {
		return fmt.Errorf("%w: %w", errSnapshot, err)
	}
	if s.in.count > 1 && compareStateKeys(s.in.last, key) >= 0 {
		return fmt.Errorf("%w: %s does not follow %s", errSnapshot, keys.PrettyState(key),
			keys.PrettyState(s.in.last))
	}
	for !containsState(s.spans[s.current], key) {
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
		if s.applied, err = decodeApplied(value); err != nil {
			return fmt.Errorf("%w: %w", errSnapshot, err)
		}
		s.hasApplied = true
	case bytes.Equal(key, keys.LocalKey(s.r.id, keys.SuffixDescriptor)):
		if s.descriptor, err = decodeDescriptor(s.r.id, value); err != nil {
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
	if err := s.versions.add(key, value); err != nil {
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
	case s.applied.index != s.index || s.applied.term != s.term:
		return fmt.Errorf("%w: its applied record is of index %d, term %d",
			errSnapshot, s.applied.index, s.applied.term)
	case s.applied.stats != s.versions.stats:
		return fmt.Errorf("%w: it holds %+v and says %+v", errSnapshot, s.versions.stats,
			s.applied.stats)
	case s.applied.highest.Less(s.highest):
		return fmt.Errorf("%w: it has a version or lock at %s, above its highest timestamp %s",
			errSnapshot, s.highest, s.applied.highest)
	}
	return nil
}

// Install makes the snapshot the state, in one step. What was in flight or remembered is of the
// past.
func (s *staged) Install() error {
	r := s.r
	defer r.node.unclaim(s.claim)
	if !r.enter() {
		r.state.DiscardTables(s.paths)
		return ErrClosed
	}
	defer r.exit()
	r.applying.lock()
	defer r.applying.unlock()
	if r.consumed.Load() {
		r.state.DiscardTables(s.paths)
		return fmt.Errorf("partition %s: %w", r.id, errConsumed)
	}
	if index, _ := r.Applied(); s.applied.index < index {
		r.state.DiscardTables(s.paths)
		return fmt.Errorf("partition %s: a snapshot of index %d is older than what is applied, %d",
			r.id, s.applied.index, index)
	}
	// INVARIANT: the threshold is published before anything that it gives free is gone.
	if threshold := s.applied.threshold; r.threshold.Load().Less(threshold) {
		r.threshold.Store(&threshold)
	}
	if err := s.install(); err != nil {
		err = fmt.Errorf("installing a snapshot of partition %s: %w", r.id, err)
		r.fail(err)
		return err
	}
	var end ending
	r.mu.Lock()
	r.giveUpLocked(&end, outcomeUnknown)
	r.mu.Unlock()
	r.finish(&end)
	if err := r.reload(s.applied, s.descriptor); err != nil {
		r.fail(err)
		return err
	}
	s.tellTaken()
	r.node.Metrics.snapshots.Inc()
	return nil
}

// install brings the tables in, takes over from those partitions that this one has consumed, and
// removes what it, and they, had beyond its present span.
func (s *staged) install() error {
	r, span := s.r, keys.PartitionSpan(s.descriptor)
	taken := s.stopConsumed()
	// INVARIANT: what split off before is durable before the snapshot takes its place: it could not
	// be made again.
	flush := r.FlushSplits
	if len(taken) > 0 {
		flush = r.state.Flush
	}
	if err := flush(); err != nil {
		return err
	}
	if err := r.state.Ingest(context.Background(), s.paths); err != nil {
		return err
	}
	former := r.Descriptor()
	if len(taken) == 0 && (isEmpty(former) || keys.PartitionSpan(former).Equal(span)) {
		return nil
	}
	// INVARIANT: after the ingestion, for a partition that lacked a part of itself would go on with
	// its log; and before the descriptor is published, for the part may be another replica's then.
	// After a crash in between it is in no partition's span, and goes when the node starts
	// (birth.Sweep), as what consumed partitions have of their own does (birth.Bury). The generation
	// is published before: a read that finds nothing there is not to answer.
	r.coming.Store(s.descriptor.Generation)
	b := r.state.NewBatch()
	defer b.Close()
	had := taken
	if !isEmpty(former) {
		had = append(had[:len(had):len(had)], former)
	}
	for _, d := range had {
		if err := deleteBeyond(b, keys.PartitionSpan(d), span); err != nil {
			return err
		}
	}
	for _, d := range taken {
		if err := deleteOwn(b, keys.PartitionID(d.Id)); err != nil {
			return err
		}
	}
	if err := r.state.Commit(b); err != nil {
		return err
	}
	r.node.spans.merge(s.descriptor, taken...)
	s.taken = taken
	return nil
}

// stopConsumed has nothing more applied to the replicas here of partitions that this one has
// consumed.
func (s *staged) stopConsumed() (taken []*clusterpb.Partition) {
	for stopped := map[uint64]bool{}; ; {
		// Once more after each round: what was still applied may have split.
		taken = s.r.node.spans.consumed(s.descriptor)
		more := false
		for _, d := range taken {
			if stopped[d.Id] {
				continue
			}
			stopped[d.Id], more = true, true
			if s.r.node.Open == nil {
				continue
			}
			if q := s.r.node.Open(keys.PartitionID(d.Id)); q != nil {
				q.stop()
			}
		}
		if !more {
			return taken
		}
	}
}

// tellTaken says that this partition has taken over from those that it has consumed.
func (s *staged) tellTaken() {
	for _, d := range s.taken {
		id := keys.PartitionID(d.Id)
		if s.r.node.Open != nil {
			if q := s.r.node.Open(id); q != nil {
				q.endConsumed(s.descriptor)
			}
		}
		if s.r.node.Taken != nil {
			s.r.node.Taken(id, s.descriptor)
		}
	}
}

// deleteBeyond deletes what lies in one span and not in another one.
func deleteBeyond(b *engine.StateBatch, had, has keys.Span) error {
	for _, beyond := range [...]keys.Span{{Start: had.Start, End: has.Start},
		{Start: has.End, End: had.End}} {
		if beyond.Empty() || bytes.Equal(beyond.Start, beyond.End) {
			continue
		}
		for _, gone := range [...]keys.Span{keys.AnchorSpan(beyond), keys.DataSpan(beyond)} {
			if err := b.DeleteRange(gone.Start, gone.End, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteOwn deletes what a partition has by its id.
func deleteOwn(b *engine.StateBatch, id keys.PartitionID) error {
	for _, suffix := range [...]string{keys.SuffixDescriptor, keys.SuffixApplied} {
		if err := b.Delete(keys.LocalKey(id, suffix), nil); err != nil {
			return err
		}
	}
	return nil
}

// Discard removes the tables.
func (s *staged) Discard() {
	s.r.state.DiscardTables(s.paths)
	s.r.node.unclaim(s.claim)
}

// FlushSplits makes the splits durable that are applied here.
func (r *Replica) FlushSplits() error {
	d := r.Descriptor()
	if isEmpty(d) || d.Generation == 1 {
		return nil
	}
	value, found, err := r.state.DurableGet(keys.LocalKey(r.id, keys.SuffixDescriptor))
	if err != nil {
		return err
	}
	if found {
		durable, err := decodeDescriptor(r.id, value)
		if err == nil && durable.Generation == d.Generation {
			return nil
		}
	}
	return r.state.Flush()
}

// checkStateKey says whether bytes from outside are a state key at all: the engine's comparer takes
// it for granted.
func checkStateKey(key []byte) error {
	if _, _, err := keys.DecodeVersioned(key); err == nil {
		return nil
	}
	if _, _, err := keys.DecodeLocalKey(key); err == nil {
		return nil
	}
	if _, _, err := keys.DecodeAnchorKey(key); err == nil {
		return nil
	}
	return fmt.Errorf("%s is not a state key", keys.Pretty(key))
}
