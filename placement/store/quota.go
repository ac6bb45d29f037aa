package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/space"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// The size of the store, and its quota (package space). The meta record has the bytes of all
// versions and events, so that the size costs nothing to know and is the same on all members; what
// an older version of the program has written without it is summed up once, when it is loaded.
//
// The leader alone judges by the quota, before it proposes, so members may have different quotas,
// and those of an older version apply what they are given. The command that would cross the quota
// raises the alarm NO_SPACE of the leader, as a member of etcd does.

// raiseTimeout bounds how long a refused command waits for the alarm that it raises.
const raiseTimeout = 5 * time.Second

// Quota bounds the size of a store.
type Quota struct {
	// Bytes is the largest size that puts, leases and imports may take the store to; 0: no bound.
	Bytes uint64
	// Member is whose alarm the leader raises when it refuses a command; 0: none is raised.
	Member uint64
}

// SetQuota sets by which quota this member judges while it leads.
func (s *Store) SetQuota(q Quota) {
	s.alarmOf.Store(q.Member)
	s.space.SetQuota(q.Bytes)
}

// Bytes is the size of the store at this member, as the quota counts it: keys and values of the
// whole history, with what is stored beside each, and leases. It falls when history is compacted.
func (s *Store) Bytes() uint64 { return s.space.Size() }

// QuotaRoom says whether the size is above this member's quota, or so far below it that an alarm
// can end. Without a quota there is always room.
func (s *Store) QuotaRoom() (over, roomy bool) { return s.space.Room() }

// AlarmOver is told that this member has no alarm for want of room (any more): what was refused
// before does not count in QuotaRoom.
func (s *Store) AlarmOver() { s.space.Forget() }

// Freed is how many bytes compactions and imports have removed since the process started. The disk
// has them back some time after (GiveBack).
func (s *Store) Freed() uint64 { return s.space.Freed() }

// cost is the most bytes that a command adds; 0 also for what no quota refuses.
func (s *Store) cost(c *storepb.Command) (uint64, error) {
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return s.txnCost(op.Txn)
	case *storepb.Command_LeaseGrant:
		return space.LeaseBytes, nil
	case *storepb.Command_Import:
		cost := uint64(len(op.Import.GetLeases())) * space.LeaseBytes
		for _, v := range op.Import.GetVersions() {
			cost += space.Put(len(v.Key), len(v.Value))
		}
		return cost, nil
	}
	return 0, nil
}

// txnCost is that of the dearer branch.
func (s *Store) txnCost(t *storepb.Txn) (most uint64, err error) {
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		sum := uint64(0)
		for _, op := range ops {
			cost := uint64(0)
			switch op := op.GetOp().(type) {
			case *storepb.Op_Put:
				cost, err = s.putCost(op.Put)
			case *storepb.Op_Txn:
				cost, err = s.txnCost(op.Txn)
			}
			if err != nil {
				return 0, err
			}
			sum += cost
		}
		most = max(most, sum)
	}
	return most, nil
}

// putCost is that of a put. One that keeps the value of its key costs as much as the value that
// there is now; a put of another value that is under way is not looked for.
func (s *Store) putCost(p *storepb.Put) (uint64, error) {
	value := len(p.Value)
	if p.IgnoreValue {
		err := s.read(func(r *reader) error {
			kv, err := r.at(p.Key, r.meta.Revision)
			value = len(kv.GetValue())
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return space.Put(len(p.Key), value), nil
}

// reserve lets a command in that is about to be proposed, and returns what it has reserved.
func (s *Store) reserve(ctx context.Context, c *storepb.Command) (uint64, error) {
	if s.space.Quota() == 0 {
		return 0, nil
	}
	cost, err := s.cost(c)
	if err != nil || cost == 0 {
		return 0, err
	}
	// What the leaders before have let in has to be counted.
	if l, _ := s.Leadership(); l.IsLeader && !l.Serving {
		if err := s.confirm(ctx); err != nil {
			return 0, err
		}
	}
	if s.space.Reserve(cost) {
		return cost, nil
	}
	s.raiseNoSpace(ctx)
	return 0, fmt.Errorf("%w: %d bytes would take %s from %d above its quota of %d", ErrNoSpace,
		cost, s.config.Name, s.space.Size(), s.space.Quota())
}

// raiseNoSpace raises the alarm of this member, unless it is raised. The command is refused whether
// or not that succeeds.
func (s *Store) raiseNoSpace(ctx context.Context) {
	alarm := &storepb.Alarm{Member: s.alarmOf.Load(), Type: storepb.Alarm_NO_SPACE, Automatic: true}
	if alarm.Member == 0 || !s.mayUse(alarmFormat) {
		return
	}
	for _, a := range s.Alarms() {
		if alarmOrder(a, alarm) == 0 {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	_, _ = s.do(ctx, RaiseAlarm(alarm))
}

// sumBytes is what the meta record says of the bytes of versions and events, by going through them.
func (r *reader) sumBytes() (sum uint64, err error) {
	for _, table := range []byte{tableVersion, tableEvent} {
		end := r.end(table)
		for ok := r.seek(r.table(table), end); ok; ok = r.next(end) {
			sum += r.pairBytes()
		}
	}
	return sum, r.it.Error()
}

// pairBytes is the size of the pair on which the iterator stands. It fetches no value.
func (r *reader) pairBytes() uint64 {
	value := r.it.LazyValue()
	return uint64(len(r.it.Key()) + value.Len())
}

// added notes the bytes of a pair that is new.
func (a *application) added(key, value []byte) { a.meta.Bytes += uint64(len(key) + len(value)) }

// removed notes the bytes of a pair that goes.
func (a *application) removed(bytes uint64) {
	bytes = min(bytes, a.meta.Bytes)
	a.meta.Bytes -= bytes
	a.freed += bytes
}

// setPair writes a version or an event, which was not there.
func (a *application) setPair(key, value []byte) error {
	a.added(key, value)
	return a.batch.Set(key, value, nil)
}

// setVersion writes a version.
func (a *application) setVersion(key []byte, record *storepb.VersionRecord) error {
	value, err := record.MarshalVT()
	if err != nil {
		return err
	}
	return a.setPair(key, value)
}

// sized has the ledger follow what was applied. known are the commands whose outcome that was.
func (s *Store) sized(meta *storepb.MetaRecord, known []known, freed uint64) {
	reserved := uint64(0)
	for _, k := range known {
		if k.outcome.err == nil {
			reserved += k.reserved
			k.reserved = 0
		}
	}
	s.space.Applied(meta.Bytes+uint64(s.lessor.Count())*space.LeaseBytes, reserved, freed)
}
