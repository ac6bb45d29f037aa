package store

import (
	"bytes"
	"cmp"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// txn evaluates a transaction: first all comparisons, on the state before it, then whether the
// chosen operations can be done, and then the operations. So a transaction that is refused has done
// nothing.
func (a *application) txn(t *storepb.Txn, result *storepb.Result) error {
	var chosen map[*storepb.Txn]bool
	err := a.read(func(r *reader) (err error) {
		if chosen, err = choose(r, t, a.format, nil); err == nil {
			err = check(r, t, chosen, result)
		}
		return err
	})
	if err != nil || result.Code != storepb.Code_OK {
		return err
	}
	w := &writer{application: a, revision: a.meta.Revision + 1}
	if result.Txn, err = w.do(t, chosen); err != nil {
		return err
	}
	return w.finish()
}

// choose says for each transaction in t whether its comparisons hold.
func choose(
	r *reader, t *storepb.Txn, format byte, chosen map[*storepb.Txn]bool,
) (map[*storepb.Txn]bool, error) {
	if chosen == nil {
		chosen = map[*storepb.Txn]bool{}
	}
	holds := true
	for _, c := range t.Compare {
		ok, err := compare(r, c, format)
		if err != nil {
			return nil, err
		}
		holds = holds && ok
	}
	chosen[t] = holds
	for _, op := range branch(t, holds) {
		if nested, ok := op.Op.(*storepb.Op_Txn); ok {
			if _, err := choose(r, nested.Txn, format, chosen); err != nil {
				return nil, err
			}
		}
	}
	return chosen, nil
}

func branch(t *storepb.Txn, holds bool) []*storepb.Op {
	if holds {
		return t.Success
	}
	return t.Failure
}

// compare evaluates one comparison, with what etcd's comes to. Over a range it has to hold for
// every key there is. A range without keys is compared as one key that does not exist: its numbers
// are 0, and no comparison with its value holds.
func compare(r *reader, c *storepb.Compare, format byte) (bool, error) {
	if len(c.RangeEnd) == 0 {
		need := withoutValue
		if c.Target == storepb.Compare_VALUE {
			need = wholePair
		}
		kv, err := r.newestAt(c.Key, r.meta.Revision, need)
		if err != nil {
			return false, err
		}
		if kv == nil {
			return holdsForNone(c), nil
		}
		return holds(c, kv), nil
	}
	all, none := true, true
	err := r.scan(rangeSpan(c.Key, c.RangeEnd), r.meta.Revision,
		func(kv *storepb.KeyValue) (bool, error) {
			all, none = holds(c, kv), false
			return all, nil
		})
	if none && format >= etcdCompareFormat {
		all = holdsForNone(c)
	}
	return all, err
}

// holdsForNone evaluates a comparison with a key that does not exist.
func holdsForNone(c *storepb.Compare) bool {
	return c.Target != storepb.Compare_VALUE && holds(c, &storepb.KeyValue{})
}

func holds(c *storepb.Compare, kv *storepb.KeyValue) bool {
	var order int
	switch c.Target {
	case storepb.Compare_VERSION:
		order = cmp.Compare(int64(kv.Version), c.Number)
	case storepb.Compare_CREATE:
		order = cmp.Compare(int64(kv.CreateRevision), c.Number)
	case storepb.Compare_MOD:
		order = cmp.Compare(int64(kv.ModRevision), c.Number)
	case storepb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.Number)
	case storepb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.Value)
	default:
		return false
	}
	switch c.Relation {
	case storepb.Compare_EQUAL:
		return order == 0
	case storepb.Compare_GREATER:
		return order > 0
	case storepb.Compare_LESS:
		return order < 0
	case storepb.Compare_NOT_EQUAL:
		return order != 0
	}
	return false
}

// check finds what would keep the chosen operations from being done.
func check(r *reader, t *storepb.Txn, chosen map[*storepb.Txn]bool, result *storepb.Result) error {
	for _, op := range branch(t, chosen[t]) {
		switch op := op.Op.(type) {
		case *storepb.Op_Txn:
			if err := check(r, op.Txn, chosen, result); err != nil {
				return err
			}
		case *storepb.Op_Range:
			refuseRevision(r.meta, op.Range, result)
		case *storepb.Op_Put:
			p := op.Put
			if p.Lease != 0 {
				_, ok, err := r.get(r.lease(p.Lease))
				if err != nil {
					return err
				}
				if !ok {
					refuse(result, storepb.Code_LEASE_NOT_FOUND, "lease %d of key %s", p.Lease,
						keys.Pretty(p.Key))
					return nil
				}
			}
			if p.IgnoreLease || p.IgnoreValue {
				kv, err := r.newestAt(p.Key, r.meta.Revision, withoutValue)
				if err != nil {
					return err
				}
				if kv == nil {
					refuse(result, storepb.Code_KEY_NOT_FOUND, "key %s", keys.Pretty(p.Key))
				}
			}
		}
		if result.Code != storepb.Code_OK {
			return nil
		}
	}
	return nil
}

// refuseRevision refuses a range of a revision that cannot be read.
func refuseRevision(meta *storepb.MetaRecord, q *storepb.Range, result *storepb.Result) {
	negative := int64(q.Revision) < 0
	switch {
	case q.Revision == 0:
	case negative && (meta.Compacted > 0 || int64(q.Revision) < -1),
		!negative && q.Revision < meta.Compacted:
		refuse(result, storepb.Code_COMPACTED, "")
		result.Compacted = meta.Compacted
	case !negative && q.Revision > meta.Revision:
		refuse(result, storepb.Code_FUTURE_REVISION,
			"revision %d was asked for, the newest is %d", q.Revision, meta.Revision)
	}
}

// writer does the writes of one command, all at one revision.
type writer struct {
	*application
	revision uint64
	// written is how many events there are. They are kept here as long as they are no more than the
	// hub would keep: a huge command, which an earlier version has let into the log, must not take
	// memory for the values of all its keys.
	written uint32
	events  []watch.Event
	bytes   int
	tooMany bool
}

// do carries out the chosen operations, in order. A range sees the writes before it.
func (w *writer) do(t *storepb.Txn, chosen map[*storepb.Txn]bool) (*storepb.TxnResult, error) {
	result := &storepb.TxnResult{Succeeded: chosen[t]}
	for _, op := range branch(t, chosen[t]) {
		one := &storepb.OpResult{}
		switch op := op.Op.(type) {
		case *storepb.Op_Range:
			if w.unheard {
				break
			}
			found, err := w.find(op.Range)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Range{Range: found}
		case *storepb.Op_Put:
			previous, err := w.put(op.Put)
			if err != nil {
				return nil, err
			}
			put := &storepb.PutResult{}
			if op.Put.Previous {
				put.Previous = previous
			}
			one.Op = &storepb.OpResult_Put{Put: put}
		case *storepb.Op_DeleteRange:
			deleted, err := w.deleteRange(op.DeleteRange)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_DeleteRange{DeleteRange: deleted}
		case *storepb.Op_Txn:
			nested, err := w.do(op.Txn, chosen)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Txn{Txn: nested}
		}
		result.Results = append(result.Results, one)
	}
	return result, nil
}

func (w *writer) find(q *storepb.Range) (result *storepb.RangeResult, err error) {
	revision := q.Revision
	if int64(revision) <= 0 {
		revision = w.revision
	}
	err = w.read(func(r *reader) error {
		result, err = r.rangeAt(q, revision, unbounded)
		return err
	})
	return result, err
}

func (w *writer) put(p *storepb.Put) (*storepb.KeyValue, error) {
	var previous *storepb.KeyValue
	need := withoutValue
	if p.Previous || p.IgnoreValue || w.watchesPrevious {
		need = wholePair
	}
	err := w.read(func(r *reader) (err error) {
		previous, err = r.newestAt(p.Key, w.revision, need)
		return err
	})
	if err != nil {
		return nil, err
	}
	record := &storepb.VersionRecord{CreateRevision: w.revision, Version: 1, Value: p.Value,
		Lease: p.Lease}
	if previous != nil {
		record.CreateRevision, record.Version = previous.CreateRevision, previous.Version+1
		if p.IgnoreValue {
			record.Value = previous.Value
		}
		if p.IgnoreLease {
			record.Lease = previous.Lease
		}
		if previous.Lease != 0 && previous.Lease != record.Lease {
			if err := w.detach(previous); err != nil {
				return nil, err
			}
		}
	}
	if record.Lease != 0 {
		if previous.GetLease() != record.Lease {
			w.attached[record.Lease]++
		}
		if err := w.batch.Set(w.store.layout.attached(record.Lease, p.Key), nil, nil); err != nil {
			return nil, err
		}
	}
	return previous, w.write(p.Key, record, previous, need)
}

// deleteRange deletes keys while it reads: the iterator goes by the batch as it was, so that it
// meets none twice.
func (w *writer) deleteRange(d *storepb.DeleteRange) (*storepb.DeleteRangeResult, error) {
	result := &storepb.DeleteRangeResult{}
	err := w.read(func(r *reader) error {
		need := func() part {
			told := d.Previous && !w.unheard
			if !told && (w.tooMany || !w.watchesPrevious) {
				return withoutValue // no caller and no watch is to be told what it was
			}
			return wholePair
		}
		return r.walk(rangeSpan(d.Key, d.RangeEnd), w.revision, need, func(kv *storepb.KeyValue) (bool,
			error) {
			result.Deleted++
			if d.Previous && !w.unheard {
				result.Previous = append(result.Previous, kv)
			}
			return true, w.delete(kv, need())
		})
	})
	return result, err
}

// delete deletes a key that was read as far as it was needed.
func (w *writer) delete(kv *storepb.KeyValue, need part) error {
	if kv.Lease != 0 {
		if err := w.detach(kv); err != nil {
			return err
		}
	}
	return w.write(kv.Key, &storepb.VersionRecord{Tombstone: true}, kv, need)
}

// detach takes a key from its lease.
func (w *writer) detach(kv *storepb.KeyValue) error {
	w.attached[kv.Lease]--
	return w.batch.Delete(w.store.layout.attached(kv.Lease, kv.Key), nil)
}

// write adds a version and its event. It copies nothing that it keeps: commands and key-values are
// never changed. had is how much of the version before was read.
func (w *writer) write(
	key []byte, record *storepb.VersionRecord, previous *storepb.KeyValue, had part,
) error {
	// INVARIANT: neither is there: a command writes a key once (checkOverlap).
	if err := w.setVersion(w.store.layout.version(key, w.revision), record); err != nil {
		return err
	}
	if err := w.setPair(w.store.layout.event(w.revision, w.written), key); err != nil {
		return err
	}
	if record.Tombstone || previous == nil {
		w.store.blocks.Changed(w.revision, key, !record.Tombstone)
	}
	kv := &storepb.KeyValue{Key: key, ModRevision: w.revision, CreateRevision: record.CreateRevision,
		Version: record.Version, Value: record.Value, Lease: record.Lease}
	w.store.newest.Wrote(kv, w.watchesPrevious)
	w.written++
	if w.tooMany {
		return nil
	}
	event := watch.Event{Previous: previous, KV: kv}
	if previous != nil && had != wholePair {
		event.Previous, event.Untold = nil, true
	}
	w.events = append(w.events, event)
	if w.bytes += event.Size(); len(w.events) > watch.MaxRecentEvents ||
		w.bytes > watch.MaxRecentBytes {
		w.events, w.tooMany = nil, true
	}
	return nil
}

// finish makes the revision the store's own, if anything was written at it.
func (w *writer) finish() error {
	if w.written == 0 {
		return nil
	}
	w.meta.Revision = w.revision
	w.store.blocks.Advance(w.revision)
	w.application.events = append(w.application.events,
		watch.Revision{Number: w.revision, Events: w.events, TooMany: w.tooMany})
	w.metaChanged = true
	return nil
}
