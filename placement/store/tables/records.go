package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Members reads the record of members; nil if there is none.
func (r *Reader) Members() (*storepb.Members, error) {
	value, ok, err := r.Get(r.Layout.Members)
	if err != nil || !ok {
		return nil, err
	}
	return command.DecodeMembers(value)
}

// Each visits a table whose keys begin with a number, in order. It stops at an error of visit and
// returns it. key is the part after the number; key and value are valid during the visit.
func (r *Reader) Each(table byte, visit func(n uint64, key, value []byte) error) error {
	return r.each(r.Table(table), r.End(table), visit)
}

func (r *Reader) each(start, end []byte, visit func(n uint64, key, value []byte) error) error {
	for ok := r.Seek(start, end); ok; ok = r.Next(end) {
		n, key, err := decodeNumberKey(r.Iterator.Key())
		if err != nil {
			return err
		}
		value, err := r.Iterator.ValueAndErr()
		if err != nil {
			return err
		}
		if err := visit(n, key, value); err != nil {
			return err
		}
	}
	return r.Iterator.Error()
}

// AttachedKeys lists the keys of a lease, in order.
func (r *Reader) AttachedKeys(id int64) ([][]byte, error) {
	var found [][]byte
	end := r.End(TableAttached)
	if next := uint64(id) + 1; next > 0 {
		end = r.Table(TableAttached, Number(next))
	}
	err := r.each(r.Table(TableAttached, Number(uint64(id))), end,
		func(_ uint64, key, _ []byte) error {
			found = append(found, bytes.Clone(key))
			return nil
		})
	return found, err
}

// AttachedCounts counts the keys of all leases.
func (r *Reader) AttachedCounts() (map[int64]int, error) {
	attached := map[int64]int{}
	err := r.Each(TableAttached, func(id uint64, _, _ []byte) error {
		attached[int64(id)]++
		return nil
	})
	return attached, err
}

// Leases reads all leases and their terms.
func (r *Reader) Leases() ([]lease.Change, error) {
	var leases []lease.Change
	err := r.Each(TableLease, func(id uint64, _, value []byte) error {
		var record storepb.LeaseRecord
		if err := proto.Unmarshal(value, &record); err != nil || record.TtlMillis == 0 {
			return fmt.Errorf("lease %d of the core's store is malformed: term %d ms, %w", id,
				record.TtlMillis, err)
		}
		leases = append(leases, lease.Change{ID: int64(id), TTLMillis: record.TtlMillis,
			LeftMillis: record.LeftMillis})
		return nil
	})
	return leases, err
}

// ReadableLeases returns the leases that have keys, without the leases for one of whose keys may
// returns ErrPermissionDenied.
func (r *Reader) ReadableLeases(
	ctx context.Context, may func(key []byte) error,
) (map[int64]bool, error) {
	readable, passed := map[int64]bool{}, 0
	err := r.Each(TableAttached, func(id uint64, key, _ []byte) error {
		if passed++; passed%InterruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if before, seen := readable[int64(id)]; seen && !before {
			return nil
		}
		err := may(key)
		if err != nil && !errors.Is(err, authority.ErrPermissionDenied) {
			return err
		}
		readable[int64(id)] = err == nil
		return nil
	})
	return readable, err
}

// AuthRecord reads the record of authentication; nil if there is none.
func (r *Reader) AuthRecord() (*storepb.AuthRecord, error) {
	value, ok, err := r.Get(r.Layout.auth)
	if err != nil || !ok {
		return nil, err
	}
	record := &storepb.AuthRecord{}
	if err := proto.Unmarshal(value, record); err != nil {
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
	users, roles, err := r.Accounts()
	if err != nil {
		return nil, err
	}
	return authority.New(record, users, roles)
}

// Accounts reads the records of users and roles, by their names.
func (r *Reader) Accounts() (users map[string]*storepb.UserRecord,
	roles map[string]*storepb.RoleRecord, err error) {
	users, roles = map[string]*storepb.UserRecord{}, map[string]*storepb.RoleRecord{}
	err = r.named(tableUser, func(name string, value []byte) error {
		users[name] = &storepb.UserRecord{}
		return proto.Unmarshal(value, users[name])
	})
	if err != nil {
		return nil, nil, err
	}
	err = r.named(tableRole, func(name string, value []byte) error {
		roles[name] = &storepb.RoleRecord{}
		return proto.Unmarshal(value, roles[name])
	})
	return users, roles, err
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
	err := r.Each(tableAlarm, func(_ uint64, _, value []byte) error {
		alarm := &storepb.Alarm{}
		if err := proto.Unmarshal(value, alarm); err != nil {
			return fmt.Errorf("an alarm of the core's store is malformed: %w", err)
		}
		list = append(list, alarm)
		return nil
	})
	slices.SortFunc(list, command.AlarmOrder)
	return list, err
}
