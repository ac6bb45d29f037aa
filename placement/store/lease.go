package store

import (
	"bytes"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func (l *layout) lease(id int64) []byte { return l.table(tableLease, number(uint64(id))) }

func (l *layout) attached(lease int64, key []byte) []byte {
	return l.table(tableAttached, number(uint64(lease)), key)
}

func (a *application) grant(g *storepb.LeaseGrant, result *storepb.Result) error {
	if g.GetId() == 0 || g.GetId() < 0 && a.format < optionsFormat ||
		g.GetTtlMillis() == 0 || g.GetTtlMillis() > lease.MaxTermMillis {
		refuse(result, storepb.Code_INVALID, "lease %d for %d ms", g.GetId(), g.GetTtlMillis())
		return nil
	}
	var exists bool
	err := a.read(func(r *reader) (err error) {
		_, exists, err = r.get(r.lease(g.Id))
		return err
	})
	if err != nil {
		return err
	}
	if exists {
		refuse(result, storepb.Code_LEASE_EXISTS, "lease %d", g.Id)
		return nil
	}
	result.Lease, result.TtlMillis = g.Id, g.TtlMillis
	a.leases = append(a.leases, lease.Change{ID: g.Id, TTLMillis: g.TtlMillis})
	return a.set(a.store.layout.lease(g.Id), &storepb.LeaseRecord{TtlMillis: g.TtlMillis})
}

// revoke ends a lease and deletes its keys, all at one revision.
func (a *application) revoke(l *storepb.LeaseRevoke, result *storepb.Result) error {
	w := &writer{application: a, revision: a.meta.Revision + 1}
	need := withoutValue
	if a.watchesPrevious {
		need = wholePair
	}
	var exists bool
	err := a.read(func(r *reader) (err error) {
		if _, exists, err = r.get(r.lease(l.GetId())); err != nil || !exists {
			return err
		}
		keys, err := attachedKeys(r, l.Id)
		if err != nil {
			return err
		}
		for _, key := range keys {
			kv, err := r.newestAt(key, r.meta.Revision, need)
			if err != nil {
				return err
			}
			if kv == nil || kv.Lease != l.Id {
				return fmt.Errorf("key %q is attached to lease %d, and does not have it", key, l.Id)
			}
			if err := w.delete(kv, need); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !exists {
		refuse(result, storepb.Code_LEASE_NOT_FOUND, "lease %d", l.GetId())
		return nil
	}
	if err := a.batch.Delete(a.store.layout.lease(l.Id), nil); err != nil {
		return err
	}
	result.Lease = l.Id
	a.leases = append(a.leases, lease.Change{ID: l.Id})
	return w.finish()
}

// checkpoint notes how long leases had left.
func (a *application) checkpoint(c *storepb.LeaseCheckpoint) error {
	for _, l := range c.GetLeases() {
		record := &storepb.LeaseRecord{}
		var exists bool
		if err := a.read(func(r *reader) error {
			value, ok, err := r.get(r.lease(l.GetId()))
			if exists = ok; err != nil || !ok {
				return err
			}
			return record.UnmarshalVT(value)
		}); err != nil {
			return err
		}
		if !exists {
			continue
		}
		record.LeftMillis = min(l.LeftMillis, record.TtlMillis)
		if err := a.set(a.store.layout.lease(l.Id), record); err != nil {
			return err
		}
		a.leases = append(a.leases, lease.Change{ID: l.Id, TTLMillis: record.TtlMillis,
			LeftMillis: record.LeftMillis, Checkpoint: true})
	}
	return nil
}

// attachedKeys lists the keys of a lease, in order.
func attachedKeys(r *reader, id int64) ([][]byte, error) {
	var found [][]byte
	start := r.table(tableAttached, number(uint64(id)))
	end := r.end(tableAttached)
	if next := uint64(id) + 1; next > 0 {
		end = r.table(tableAttached, number(next))
	}
	for ok := r.seek(start, end); ok; ok = r.next(end) {
		_, key, err := decodeNumberKey(r.it.Key())
		if err != nil {
			return nil, err
		}
		found = append(found, bytes.Clone(key))
	}
	return found, r.it.Error()
}

// loadAttached counts the keys of all leases.
func loadAttached(r *reader) (map[int64]int, error) {
	attached := map[int64]int{}
	end := r.end(tableAttached)
	for ok := r.seek(r.table(tableAttached), end); ok; ok = r.next(end) {
		id, _, err := decodeNumberKey(r.it.Key())
		if err != nil {
			return nil, err
		}
		attached[int64(id)]++
	}
	return attached, r.it.Error()
}

// loadLeases reads all leases and their terms.
func loadLeases(r *reader) ([]lease.Change, error) {
	var leases []lease.Change
	end := r.end(tableLease)
	for ok := r.seek(r.table(tableLease), end); ok; ok = r.next(end) {
		id, _, err := decodeNumberKey(r.it.Key())
		if err != nil {
			return nil, err
		}
		value, err := r.it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		var record storepb.LeaseRecord
		if err := record.UnmarshalVT(value); err != nil || record.TtlMillis == 0 {
			return nil, fmt.Errorf("lease %d of the core's store is malformed: term %d ms, %w", id,
				record.TtlMillis, err)
		}
		leases = append(leases, lease.Change{ID: int64(id), TTLMillis: record.TtlMillis,
			LeftMillis: record.LeftMillis})
	}
	return leases, r.it.Error()
}
