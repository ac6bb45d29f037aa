package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarms say what keeps the store from writing, as etcd's do: a member that has no room, or members
// that differ. They lie in the state and count where commands are applied, so all members refuse
// the same ones. While there is an alarm for want of room nothing is put or imported and no lease
// granted; keys can be read, deleted and compacted. While there is one for differing members
// nothing is written. An import can be abandoned always.
//
// A leader refuses such commands also before they are proposed: the log, too, takes room.

// maxAlarms bounds how many alarms there can be.
const maxAlarms = 256

var (
	// ErrNoSpace says that an alarm for want of room is raised, or would be by the command.
	ErrNoSpace = errors.New("there is no room: a member's disk is nearly full, or the quota is used up")
	// ErrCorrupt says that an alarm for members that differ is raised.
	ErrCorrupt = errors.New("an alarm says that members differ")
)

// RaiseAlarm is a command that raises an alarm. Its result has the alarm that there is then:
// one that is not automatic takes the place of an automatic one.
func RaiseAlarm(alarm *storepb.Alarm) *storepb.Command { return changeAlarm(alarm, false) }

// EndAlarm is a command that ends an alarm. Its result has the alarm that there was; nil: none. An
// automatic one ends no other.
func EndAlarm(alarm *storepb.Alarm) *storepb.Command { return changeAlarm(alarm, true) }

func changeAlarm(alarm *storepb.Alarm, end bool) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_AlarmChange{
		AlarmChange: &storepb.AlarmChange{Alarm: alarm, End: end}}}
}

// Alarms are those that are raised, as far as this member knows, by member and type. They are not
// to be changed.
func (s *Store) Alarms() []*storepb.Alarm {
	if list := s.alarms.Load(); list != nil {
		return *list
	}
	return nil
}

// AlarmsNow is Alarms as of the moment of the call, on any member.
func (s *Store) AlarmsNow(ctx context.Context) ([]*storepb.Alarm, error) {
	if err := s.confirm(ctx); err != nil {
		return nil, err
	}
	return s.Alarms(), nil
}

// alarmOrder orders alarms, and finds one.
func alarmOrder(a, b *storepb.Alarm) int {
	return cmp.Or(cmp.Compare(a.GetMember(), b.GetMember()), cmp.Compare(a.GetType(), b.GetType()))
}

func validateAlarmChange(c *storepb.AlarmChange) error {
	if t := c.GetAlarm().GetType(); t != storepb.Alarm_NO_SPACE && t != storepb.Alarm_CORRUPT {
		return fmt.Errorf("%w: an alarm of type %d", ErrInvalid, t)
	}
	return nil
}

func (l *layout) alarm(a *storepb.Alarm) []byte {
	return l.table(tableAlarm, number(a.GetMember()), number(uint64(a.GetType())))
}

// currentAlarms are what the entries so far have made of the alarms.
func (a *application) currentAlarms() []*storepb.Alarm {
	if a.alarms != nil {
		return *a.alarms
	}
	return a.store.Alarms()
}

// changeAlarm applies a command.
func (a *application) changeAlarm(c *storepb.AlarmChange, result *storepb.Result) error {
	alarm := c.GetAlarm()
	if alarm == nil {
		refuse(result, storepb.Code_INVALID, "no alarm")
		return nil
	}
	now := a.currentAlarms()
	at, there := slices.BinarySearchFunc(now, alarm, alarmOrder)
	if there {
		result.Alarm = now[at]
	}
	key := a.store.layout.alarm(alarm)
	var next []*storepb.Alarm
	switch {
	case c.End && (!there || alarm.Automatic && !now[at].Automatic):
		result.Alarm = nil
		return nil
	case c.End:
		next = slices.Delete(slices.Clone(now), at, at+1)
		a.alarms = &next
		return a.batch.Delete(key, nil)
	case there && (alarm.Automatic || !now[at].Automatic):
		return nil
	case there:
		// The client that asks for it ends it.
		next = slices.Clone(now)
		next[at] = alarm
		a.alarms, result.Alarm = &next, alarm
		return a.set(key, alarm)
	case len(now) >= maxAlarms:
		refuse(result, storepb.Code_TOO_LARGE, "there are %d alarms, and can be no more", len(now))
		return nil
	}
	next = slices.Insert(slices.Clone(now), at, alarm)
	a.alarms, result.Alarm = &next, alarm
	return a.set(key, alarm)
}

// alarmed is why a command is refused while there are such alarms; OK if it is not.
func alarmed(alarms []*storepb.Alarm, c *storepb.Command) storepb.Code {
	if len(alarms) == 0 {
		return storepb.Code_OK
	}
	var writes, puts bool
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		writes, puts = !ReadOnly(op.Txn), putsAny(op.Txn)
	case *storepb.Command_LeaseGrant:
		writes, puts = true, true
	case *storepb.Command_LeaseRevoke, *storepb.Command_Compact:
		writes = true
	case *storepb.Command_Import:
		writes = !op.Import.GetAbandon()
		puts = writes && len(op.Import.GetLeases())+len(op.Import.GetVersions()) > 0
	}
	code := storepb.Code_OK
	for _, alarm := range alarms {
		switch {
		case writes && alarm.Type == storepb.Alarm_CORRUPT:
			return storepb.Code_CORRUPT
		case puts && alarm.Type == storepb.Alarm_NO_SPACE:
			code = storepb.Code_NO_SPACE
		}
	}
	return code
}

// putsAny says whether a transaction may put a key.
func putsAny(t *storepb.Txn) bool {
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetOp().(type) {
			case *storepb.Op_Put:
				return true
			case *storepb.Op_Txn:
				if putsAny(op.Txn) {
					return true
				}
			}
		}
	}
	return false
}

// checkAlarms refuses on the leader what would be refused when it is applied. The end of an alarm
// may have been acknowledged elsewhere before it is applied here, so that is waited for.
func (s *Store) checkAlarms(ctx context.Context, c *storepb.Command) error {
	if alarmed(s.Alarms(), c) == storepb.Code_OK {
		return nil
	}
	if err := s.confirm(ctx); err != nil {
		return err
	}
	return resultError(&storepb.Result{Code: alarmed(s.Alarms(), c)})
}

// loadAlarms reads the alarms.
func loadAlarms(r *reader) ([]*storepb.Alarm, error) {
	var list []*storepb.Alarm
	end := r.end(tableAlarm)
	for ok := r.seek(r.table(tableAlarm), end); ok; ok = r.next(end) {
		value, err := r.it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		alarm := &storepb.Alarm{}
		if err := alarm.UnmarshalVT(value); err != nil {
			return nil, fmt.Errorf("an alarm of the core's store is malformed: %w", err)
		}
		list = append(list, alarm)
	}
	slices.SortFunc(list, alarmOrder)
	return list, r.it.Error()
}
