package apply

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

func (a *Application) grant(g *storepb.LeaseGrant, result *storepb.Result) error {
	if g.GetId() == 0 || g.GetId() < 0 && a.format < command.OptionsFormat ||
		g.GetTtlMillis() == 0 || g.GetTtlMillis() > command.MaxLeaseMillis {
		command.Refuse(result, storepb.Code_INVALID, "lease %d for %d ms", g.GetId(), g.GetTtlMillis())
		return nil
	}
	var exists bool
	err := a.read(func(r *tables.Reader) (err error) {
		_, exists, err = r.Get(r.Lease(g.Id))
		return err
	})
	if err != nil {
		return err
	}
	if exists {
		command.Refuse(result, storepb.Code_LEASE_EXISTS, "lease %d", g.Id)
		return nil
	}
	result.Lease, result.TtlMillis = g.Id, g.TtlMillis
	a.Leases = append(a.Leases, lease.Change{ID: g.Id, TTLMillis: g.TtlMillis})
	return a.set(a.machine.layout.Lease(g.Id), &storepb.LeaseRecord{TtlMillis: g.TtlMillis})
}

// revoke ends a lease and deletes its keys, all at one revision.
func (a *Application) revoke(l *storepb.LeaseRevoke, result *storepb.Result) error {
	w := &writer{Application: a, revision: a.Meta.Revision + 1}
	need := tables.WithoutValue
	if a.watchesPrevious {
		need = tables.WholePair
	}
	var exists bool
	err := a.read(func(r *tables.Reader) (err error) {
		if _, exists, err = r.Get(r.Lease(l.GetId())); err != nil || !exists {
			return err
		}
		keys, err := r.AttachedKeys(l.Id)
		if err != nil {
			return err
		}
		for _, key := range keys {
			kv, err := r.NewestAt(key, r.Meta.Revision, need)
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
		command.Refuse(result, storepb.Code_LEASE_NOT_FOUND, "lease %d", l.GetId())
		return nil
	}
	if err := a.batch.Delete(a.machine.layout.Lease(l.Id), nil); err != nil {
		return err
	}
	result.Lease = l.Id
	a.Leases = append(a.Leases, lease.Change{ID: l.Id})
	return w.finish()
}

// checkpoint records the remaining times of leases.
func (a *Application) checkpoint(c *storepb.LeaseCheckpoint) error {
	for _, l := range c.GetLeases() {
		record := &storepb.LeaseRecord{}
		var exists bool
		if err := a.read(func(r *tables.Reader) error {
			value, ok, err := r.Get(r.Lease(l.GetId()))
			if exists = ok; err != nil || !ok {
				return err
			}
			return proto.Unmarshal(value, record)
		}); err != nil {
			return err
		}
		if !exists {
			continue
		}
		record.LeftMillis = min(l.LeftMillis, record.TtlMillis)
		if err := a.set(a.machine.layout.Lease(l.Id), record); err != nil {
			return err
		}
		a.Leases = append(a.Leases, lease.Change{ID: l.Id, TTLMillis: record.TtlMillis,
			LeftMillis: record.LeftMillis, Checkpoint: true})
	}
	return nil
}
