package apply

import (
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// txn evaluates a transaction: first all comparisons, on the state before it, then whether the
// chosen operations can be done, and then the operations. So a refused transaction has changed
// nothing.
func (a *Application) txn(t *storepb.Txn, result *storepb.Result) error {
	var chosen map[*storepb.Txn]bool
	err := a.read(func(r *tables.Reader) (err error) {
		if chosen, err = r.Choose(t, a.format, nil); err == nil {
			err = r.Check(t, chosen, result)
		}
		return err
	})
	if err != nil || result.Code != storepb.Code_OK {
		return err
	}
	w := &writer{Application: a, revision: a.Meta.Revision + 1}
	if result.Txn, err = w.do(t, chosen); err != nil {
		return err
	}
	return w.finish()
}

// writer makes the writes of one command, all at one revision.
type writer struct {
	*Application
	revision uint64
	// written counts the events. The writer keeps only as many events as the hub would: a huge
	// command that an earlier version has proposed must not take memory for the values of all its
	// keys.
	written uint32
	events  []watch.Event
	bytes   int
	tooMany bool
}

// do applies the chosen operations, in order. A range sees the writes before it.
func (w *writer) do(t *storepb.Txn, chosen map[*storepb.Txn]bool) (*storepb.TxnResult, error) {
	result := &storepb.TxnResult{Succeeded: chosen[t]}
	for _, op := range tables.Branch(t, chosen[t]) {
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
	err = w.read(func(r *tables.Reader) error {
		result, err = r.RangeAt(q, revision, tables.Unbounded)
		return err
	})
	return result, err
}

func (w *writer) put(p *storepb.Put) (*storepb.KeyValue, error) {
	var previous *storepb.KeyValue
	need := tables.WithoutValue
	if p.Previous || p.IgnoreValue || w.watchesPrevious {
		need = tables.WholePair
	}
	err := w.read(func(r *tables.Reader) (err error) {
		previous, err = r.NewestAt(p.Key, w.revision, need)
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
			w.Attached[record.Lease]++
		}
		if err := w.batch.Set(w.machine.layout.Attached(record.Lease, p.Key), nil, nil); err != nil {
			return nil, err
		}
	}
	return previous, w.write(p.Key, record, previous, need)
}

// deleteRange deletes keys while it reads: the iterator reads the batch as it was before, so it
// meets no key twice.
func (w *writer) deleteRange(d *storepb.DeleteRange) (*storepb.DeleteRangeResult, error) {
	result := &storepb.DeleteRangeResult{}
	err := w.read(func(r *tables.Reader) error {
		need := func() tables.Part {
			told := d.Previous && !w.unheard
			if !told && (w.tooMany || !w.watchesPrevious) {
				return tables.WithoutValue // no caller and no watch needs the value
			}
			return tables.WholePair
		}
		return r.Walk(command.Span(d.Key, d.RangeEnd), w.revision, need, func(kv *storepb.KeyValue) (bool,
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

// delete deletes a key. need is the part of the pair that was read.
func (w *writer) delete(kv *storepb.KeyValue, need tables.Part) error {
	if kv.Lease != 0 {
		if err := w.detach(kv); err != nil {
			return err
		}
	}
	return w.write(kv.Key, &storepb.VersionRecord{Tombstone: true}, kv, need)
}

// detach removes a key from its lease.
func (w *writer) detach(kv *storepb.KeyValue) error {
	w.Attached[kv.Lease]--
	return w.batch.Delete(w.machine.layout.Attached(kv.Lease, kv.Key), nil)
}

// write adds a version and its event. It keeps its arguments without copies: commands and
// key-values are never changed. had is the part of the previous version that was read.
func (w *writer) write(
	key []byte, record *storepb.VersionRecord, previous *storepb.KeyValue, had tables.Part,
) error {
	// INVARIANT: neither the version nor the event exists: a command writes a key once
	// (checkOverlap).
	if err := w.setVersion(w.machine.layout.Version(key, w.revision), record); err != nil {
		return err
	}
	if err := w.setPair(w.machine.layout.Event(w.revision, w.written), key); err != nil {
		return err
	}
	if record.Tombstone || previous == nil {
		w.machine.blocks.Changed(w.revision, key, !record.Tombstone)
	}
	kv := &storepb.KeyValue{Key: key, ModRevision: w.revision, CreateRevision: record.CreateRevision,
		Version: record.Version, Value: record.Value, Lease: record.Lease}
	w.machine.newest.Wrote(kv, w.watchesPrevious)
	w.written++
	if w.tooMany {
		return nil
	}
	event := watch.Event{Previous: previous, KV: kv}
	if previous != nil && had != tables.WholePair {
		event.Previous, event.Untold = nil, true
	}
	w.events = append(w.events, event)
	if w.bytes += event.Size(); len(w.events) > watch.MaxRecentEvents ||
		w.bytes > watch.MaxRecentBytes {
		w.events, w.tooMany = nil, true
	}
	return nil
}

// finish sets the store's revision, if the command has written.
func (w *writer) finish() error {
	if w.written == 0 {
		return nil
	}
	w.Meta.Revision = w.revision
	w.machine.blocks.Advance(w.revision)
	w.Application.Events = append(w.Application.Events,
		watch.Revision{Number: w.revision, Events: w.events, TooMany: w.tooMany})
	w.metaChanged = true
	return nil
}
