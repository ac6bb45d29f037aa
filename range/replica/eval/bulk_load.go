package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Loading a block of records (command.Load).
//
// The cost of a put is mostly a cost per key: a place in the queue, a look-up, a pending write, a
// place in a memtable, and repeated sorting into tables. A load pays these costs once for a block
// of records. It is evaluated with nothing in flight, and nothing else is evaluated until the fate
// of its entry is known, so its keys need not be remembered: a read of its span at or above its
// timestamp waits for the entry. The entry carries the block as the client made it.
//
// Each replica makes a table of the block, and commits the table and the applied record in one step
// (engine.CommitTables): the state has the records if and only if it has applied the entry, also
// after a crash, as with a batch. A small block is committed as a batch.

// loadBlock writes a block by an entry of its own. It returns the timestamp, and false if nothing
// of the block takes effect: the epoch is over, or the block is evaluated once more (again).
func (e *evaluation) loadBlock(w *write) (hlc.Timestamp, bool, error) {
	r, l, q := e.r, e.Loading, w.pending.Request.GetLoad()
	ts := hlc.Max(hlc.Max(e.Clock, w.session.Next()), l.Prior.Next())
	if e.CommitWait {
		ts = hlc.Max(ts, r.Node.Clock.WaitFloor())
	}
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return hlc.Timestamp{}, false, nil
	}
	// INVARIANT: the lock is that under which reads enter the timestamp cache: a read that is not
	// in the cache by now finds the load.
	for _, low := range [...]hlc.Timestamp{r.FloorLocked(), r.Mu.Cache.Max()} {
		if ts.LessEq(low) {
			ts = low.Next()
		}
	}
	if e.tooLate(ts) {
		r.Mu.Unlock()
		return hlc.Timestamp{}, false, nil
	}
	e.proposal.Load = &machine.LoadSpan{First: string(q.First), Last: string(q.Last)}
	e.proposal.Lowest = ts
	r.written = hlc.Max(r.written, ts)
	r.Mu.Unlock()
	e.highest = hlc.Max(e.highest, ts)
	e.HoldFor(e.CommitWait, ts)
	expiring, first := l.Expiring(ts)
	r.garbage.WillExpire(first)
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

// loadDelta returns the change of statistics by records whose keys had no value before. size is
// that of their user keys and values; expiring counts the records that expire.
func loadDelta(d *clusterpb.Partition, ts hlc.Timestamp, records int, size uint64,
	expiring int) proposal.Delta {
	each := keys.VersionedKeySize(keys.PartitionPrefix(d), ts)
	return proposal.Delta{LiveKeys: int64(records), Versions: int64(records),
		Bytes: int64(size) + int64(records)*int64(each), Expiring: int64(expiring)}
}

// splitLoad accounts for the records that a load puts into the part that is to split off.
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
		if found && before.Kind == mvcc.KindValue {
			d.LiveKeys = 0
		}
		e.proposal.Right.Add(d)
	}
}
