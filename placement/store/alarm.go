package store

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarms say what keeps the store from writing, as etcd's do: a member without disk space, or
// members that differ. They lie in the state and count where commands are applied, so all members
// refuse the same ones. While there is an alarm NO_SPACE nothing is put or imported and no lease
// granted; keys can be read, deleted and compacted. While there is one for differing members
// nothing is written. An import can be abandoned always.
//
// A leader refuses such commands also before they are proposed: the log, too, takes disk space.

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
