package store

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/command"
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
	if err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	return s.Alarms(), nil
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
		command.Refuse(result, storepb.Code_INVALID, "no alarm")
		return nil
	}
	now := a.currentAlarms()
	at, there := slices.BinarySearchFunc(now, alarm, command.AlarmOrder)
	if there {
		result.Alarm = now[at]
	}
	key := a.store.layout.Alarm(alarm)
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
		command.Refuse(result, storepb.Code_TOO_LARGE, "there are %d alarms, and can be no more",
			len(now))
		return nil
	}
	next = slices.Insert(slices.Clone(now), at, alarm)
	a.alarms, result.Alarm = &next, alarm
	return a.set(key, alarm)
}
