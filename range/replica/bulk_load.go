package replica

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// How many records become versions at once (command.Load).
//
// What a put costs is mostly paid for each key: a place in the queue, a look-up, a pending write, a
// place in a memtable, and to be sorted into tables over and over. A load pays for a block of
// records. It is evaluated with nothing in flight, and until the fate of its entry is known nothing
// else is, so that no key of it has to be remembered: what reads its span at or above its timestamp
// waits for the entry. The entry carries the block as the client made it.
//
// Each replica makes a table of it, and commits that and the applied record in one step
// (engine.CommitTables): so the state has the records if and only if it has applied the entry,
// after a crash too, as with a batch. A small block is committed as a batch.

// pendingLoad is the span of user keys that an entry on its way loads, at the entry's lowest
// timestamp.
type pendingLoad struct{ first, last string }

// in says whether it may have keys of a span, of which an empty end is that of the partition.
func (l *pendingLoad) in(start, end []byte) bool {
	return l != nil && text(start) <= l.last && (len(end) == 0 || l.first < text(end))
}

// loadingLocked is the entry on its way that loads records; nil if there is none.
func (r *Replica) loadingLocked() *pendingEntry {
	if b := r.mu.building; b != nil && b.load != nil {
		return b
	}
	for _, p := range r.mu.inFlight {
		if p.load != nil {
			return p
		}
	}
	return nil
}

// soleLocked says that an entry is on its way until whose fate is known nothing is evaluated.
func (r *Replica) soleLocked() bool {
	if b := r.mu.building; b != nil && (b.load != nil || b.sole) {
		return true
	}
	for _, p := range r.mu.inFlight {
		if p.load != nil || p.sole {
			return true
		}
	}
	return false
}

// loadOfLocked is the entry that loads a key at or below a timestamp; nil if there is none.
func (r *Replica) loadOfLocked(key []byte, at hlc.Timestamp) *pendingEntry {
	p := r.loadingLocked()
	if p == nil || at.Less(p.lowest) || text(key) < p.load.first || p.load.last < text(key) {
		return nil
	}
	return p
}

// loadBlock has a block written by an entry of its own. It returns the timestamp, and false if
// nothing of it has an effect: the epoch is over, or it is evaluated again (again).
func (e *evaluation) loadBlock(w *write) (hlc.Timestamp, bool, error) {
	r, l, q := e.r, e.Loading, w.pending.Request.GetLoad()
	ts := hlc.Max(hlc.Max(e.Clock, w.session.Next()), l.Prior.Next())
	if e.CommitWait {
		ts = hlc.Max(ts, r.node.Clock.WaitFloor())
	}
	r.mu.Lock()
	if !r.mu.leadership.Is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return hlc.Timestamp{}, false, nil
	}
	// INVARIANT: under the lock under which reads enter the timestamp cache: what is not in it by now
	// finds the load.
	for _, low := range [...]hlc.Timestamp{r.floorLocked(), r.mu.cache.Max()} {
		if ts.LessEq(low) {
			ts = low.Next()
		}
	}
	if e.tooLate(ts) {
		r.mu.Unlock()
		return hlc.Timestamp{}, false, nil
	}
	e.proposal.load = &pendingLoad{first: string(q.First), last: string(q.Last)}
	e.proposal.lowest = ts
	r.mu.written = hlc.Max(r.mu.written, ts)
	r.mu.Unlock()
	e.highest = hlc.Max(e.highest, ts)
	e.HoldFor(e.CommitWait, ts)
	expiring, first := l.Expiring(ts)
	r.gc.WillExpire(first)
	e.delta.Add(loadDelta(e.Descriptor, ts, l.Records, l.Size, expiring))
	e.delta.LiveKeys -= int64(l.Live)
	if err := e.splitLoad(l, ts); err != nil {
		return ts, true, err
	}
	load := proposal.Load{Timestamp: ts, Request: w.requestID(), CommitWait: e.CommitWait,
		Expires: l.Lifetime.ExpiryOf(ts), Block: l.Block}
	e.kind, e.internal.Batch = proposal.KindLoad, load.Encode()
	return ts, true, nil
}

// loadDelta is what records count that have had no value before. size is that of their user keys
// and values, expiring how many of the records expire.
func loadDelta(d *clusterpb.Partition, ts hlc.Timestamp, records int, size uint64,
	expiring int) proposal.Delta {
	each := keys.VersionedKeySize(keys.PartitionPrefix(d), ts)
	return proposal.Delta{LiveKeys: int64(records), Versions: int64(records),
		Bytes: int64(size) + int64(records)*int64(each), Expiring: int64(expiring)}
}

// splitLoad accounts for what a load puts into the part that is to split off.
func (e *evaluation) splitLoad(l *command.Loading, ts hlc.Timestamp) error {
	if e.splitStats == nil {
		return nil
	}
	records, err := block.Open(l.Block)
	if err != nil {
		return err
	}
	getter, err := mvcc.NewGetter(e.State)
	if err != nil {
		return err
	}
	defer getter.Close()
	for {
		record, ok, err := records.Next()
		if err != nil || !ok {
			return err
		}
		internalKey := e.InternalKey(record.Key)
		if !e.splitStats.Has(internalKey) {
			continue
		}
		before, found, err := getter.Newest(internalKey)
		if err != nil {
			return err
		}
		expiring := 0
		if l.LifetimeOf(record).ExpiryOf(ts) != 0 {
			expiring = 1
		}
		d := loadDelta(e.Descriptor, ts, 1, uint64(len(record.Key)+len(record.Value)), expiring)
		if isValue(before, found) {
			d.LiveKeys = 0
		}
		e.proposal.right.Add(d)
	}
}

// isLoad says whether an entry is to be applied by itself: it may make a table.
func isLoad(e *group.Entry) bool { return proposal.KindOf(e.Data) == proposal.KindLoad }

// stageLoad adds the records of an entry to the batch, or to tables if it is large and the entry
// comes by itself. It checks everything.
func (r *Replica) stageLoad(batch *engine.StateBatch, d *clusterpb.Partition, p *proposal.Entry,
	c *changes) error {
	l, err := proposal.DecodeLoad(p.Batch)
	if err != nil {
		return err
	}
	if p.Highest.Less(l.Timestamp) {
		return fmt.Errorf("%w: a load at %s is above the entry's highest timestamp %s",
			proposal.ErrMalformed, l.Timestamp, p.Highest)
	}
	records, err := block.Open(l.Block)
	if err != nil {
		return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	header := mvcc.Header{Kind: mvcc.KindValue, Request: l.Request, CommitWait: l.CommitWait}
	set := func(key, value []byte) error {
		return mvcc.Write(batch, key, l.Timestamp, header, value)
	}
	if c.alone && records.Body() >= r.node.LoadTableBytes {
		table, err := r.state.NewTableWriter()
		if err != nil {
			return err
		}
		c.table = table
		var stateKey, stored []byte
		set = func(key, value []byte) error {
			stateKey = keys.AppendTimestamp(keys.AppendDataKey(stateKey[:0], key), l.Timestamp)
			stored = append(header.Append(stored[:0]), value...)
			return table.Set(stateKey, stored)
		}
	}
	span := keys.PartitionSpan(d)
	var internalKey []byte
	for {
		record, ok, err := records.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
		}
		if !ok {
			return nil
		}
		internalKey = keys.AppendInternalKey(internalKey[:0], d, record.Key)
		if !span.Contains(internalKey) {
			return fmt.Errorf("%w: %s is outside the partition's span %s", proposal.ErrMalformed,
				keys.Pretty(internalKey), span)
		}
		if header.Expires = l.Expires; record.Lifetime != keys.DefaultLifetime {
			header.Expires = record.Lifetime.ExpiryOf(l.Timestamp)
		}
		if err := set(internalKey, record.Value); err != nil {
			return err
		}
	}
}

// commitApplied commits a batch, or the table of a load instead, with the applied record.
func (r *Replica) commitApplied(batch *engine.StateBatch, applied *storage.Record,
	table *engine.TableWriter) error {
	var buffer [storage.MaxRecord]byte
	record := applied.Append(buffer[:0])
	if table == nil {
		if err := batch.Set(r.appliedKey, record, nil); err != nil {
			return err
		}
		return r.state.Commit(batch)
	}
	local, err := r.state.NewTableWriter()
	if err != nil {
		return err
	}
	defer local.Abort()
	if err := local.Set(r.appliedKey, record); err != nil {
		return err
	}
	size := int(table.Size())
	var paths []string
	for _, w := range [...]*engine.TableWriter{local, table} {
		path, err := w.Finish()
		if err != nil {
			r.state.DiscardTables(paths)
			return err
		}
		paths = append(paths, path)
	}
	return r.state.CommitTables(context.Background(), paths, size)
}
