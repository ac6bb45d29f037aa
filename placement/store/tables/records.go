package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Members reads the record; nil if there is none.
func (r *Reader) Members() (*storepb.Members, error) {
	value, ok, err := r.Get(r.Layout.Members)
	if err != nil || !ok {
		return nil, err
	}
	return command.DecodeMembers(value)
}

// AttachedKeys lists the keys of a lease, in order.
func (r *Reader) AttachedKeys(id int64) ([][]byte, error) {
	var found [][]byte
	start := r.Table(TableAttached, Number(uint64(id)))
	end := r.End(TableAttached)
	if next := uint64(id) + 1; next > 0 {
		end = r.Table(TableAttached, Number(next))
	}
	for ok := r.Seek(start, end); ok; ok = r.Next(end) {
		_, key, err := DecodeNumberKey(r.Iterator.Key())
		if err != nil {
			return nil, err
		}
		found = append(found, bytes.Clone(key))
	}
	return found, r.Iterator.Error()
}

// AttachedCounts counts the keys of all leases.
func (r *Reader) AttachedCounts() (map[int64]int, error) {
	attached := map[int64]int{}
	end := r.End(TableAttached)
	for ok := r.Seek(r.Table(TableAttached), end); ok; ok = r.Next(end) {
		id, _, err := DecodeNumberKey(r.Iterator.Key())
		if err != nil {
			return nil, err
		}
		attached[int64(id)]++
	}
	return attached, r.Iterator.Error()
}

// Leases reads all leases and their terms.
func (r *Reader) Leases() ([]lease.Change, error) {
	var leases []lease.Change
	end := r.End(TableLease)
	for ok := r.Seek(r.Table(TableLease), end); ok; ok = r.Next(end) {
		id, _, err := DecodeNumberKey(r.Iterator.Key())
		if err != nil {
			return nil, err
		}
		value, err := r.Iterator.ValueAndErr()
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
	return leases, r.Iterator.Error()
}

// ReadableLeases are the leases that have keys, and none that may refuses with ErrPermissionDenied.
func (r *Reader) ReadableLeases(
	ctx context.Context, may func(key []byte) error,
) (map[int64]bool, error) {
	readable, passed := map[int64]bool{}, 0
	end := r.End(TableAttached)
	for ok := r.Seek(r.Table(TableAttached), end); ok; ok = r.Next(end) {
		if passed++; passed%InterruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		id, key, err := DecodeNumberKey(r.Iterator.Key())
		if err != nil {
			return nil, err
		}
		if before, seen := readable[int64(id)]; seen && !before {
			continue
		}
		err = may(key)
		if err != nil && !errors.Is(err, authority.ErrPermissionDenied) {
			return nil, err
		}
		readable[int64(id)] = err == nil
	}
	return readable, r.Iterator.Error()
}

// AuthRecord reads the record of the state; nil if there is none.
func (r *Reader) AuthRecord() (*storepb.AuthRecord, error) {
	value, ok, err := r.Get(r.Layout.auth)
	if err != nil || !ok {
		return nil, err
	}
	record := &storepb.AuthRecord{}
	if err := record.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("the record of authentication is malformed: %w", err)
	}
	return record, nil
}

// Authority reads users and roles.
func (r *Reader) Authority() (*authority.State, error) {
	record, err := r.AuthRecord()
	if err != nil {
		return nil, err
	}
	users, roles := map[string]*storepb.UserRecord{}, map[string]*storepb.RoleRecord{}
	err = r.named(tableUser, func(name string, value []byte) error {
		users[name] = &storepb.UserRecord{}
		return users[name].UnmarshalVT(value)
	})
	if err != nil {
		return nil, err
	}
	err = r.named(tableRole, func(name string, value []byte) error {
		roles[name] = &storepb.RoleRecord{}
		return roles[name].UnmarshalVT(value)
	})
	if err != nil {
		return nil, err
	}
	return authority.New(record, users, roles)
}

// named visits the records of a table whose keys are names.
func (r *Reader) named(table byte, visit func(name string, value []byte) error) error {
	end := r.End(table)
	for ok := r.Seek(r.Table(table), end); ok; ok = r.Next(end) {
		name, err := decodeNameKey(r.Iterator.Key())
		if err != nil {
			return err
		}
		value, err := r.Iterator.ValueAndErr()
		if err != nil {
			return err
		}
		if err := visit(name, value); err != nil {
			return fmt.Errorf("record %q of table %q of the core's store is malformed: %w", name, table,
				err)
		}
	}
	return r.Iterator.Error()
}

// Alarms reads the alarms.
func (r *Reader) Alarms() ([]*storepb.Alarm, error) {
	var list []*storepb.Alarm
	end := r.End(tableAlarm)
	for ok := r.Seek(r.Table(tableAlarm), end); ok; ok = r.Next(end) {
		value, err := r.Iterator.ValueAndErr()
		if err != nil {
			return nil, err
		}
		alarm := &storepb.Alarm{}
		if err := alarm.UnmarshalVT(value); err != nil {
			return nil, fmt.Errorf("an alarm of the core's store is malformed: %w", err)
		}
		list = append(list, alarm)
	}
	slices.SortFunc(list, command.AlarmOrder)
	return list, r.Iterator.Error()
}
