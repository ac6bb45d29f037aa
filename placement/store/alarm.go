package store

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarms keep the store from writing, as etcd's do. Their causes: a member has no disk space, or
// members differ. Alarms are part of the state and are checked where commands are applied, so all
// members refuse the same commands. Under NO_SPACE the store refuses puts, imports and new leases;
// keys can be read, deleted and compacted. While members differ, it refuses all writes. An import
// can always be abandoned.
//
// A leader also refuses such commands before they are proposed, since the log takes disk space too.

// RaiseAlarm is a command that raises an alarm. Its result has the alarm that is then raised: a
// manual alarm replaces an automatic one.
func RaiseAlarm(alarm *storepb.Alarm) *storepb.Command { return changeAlarm(alarm, false) }

// EndAlarm is a command that ends an alarm. Its result has the alarm that ended; nil if none did.
// An automatic EndAlarm ends only automatic alarms.
func EndAlarm(alarm *storepb.Alarm) *storepb.Command { return changeAlarm(alarm, true) }

func changeAlarm(alarm *storepb.Alarm, end bool) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_AlarmChange{
		AlarmChange: &storepb.AlarmChange{Alarm: alarm, End: end}}}
}

// Alarms are the raised alarms that this member knows, by member and type. The caller must not
// change them.
func (s *Store) Alarms() []*storepb.Alarm {
	if list := s.alarms.Load(); list != nil {
		return *list
	}
	return nil
}

// AlarmsNow is Alarms as of the call, on any member.
func (s *Store) AlarmsNow(ctx context.Context) ([]*storepb.Alarm, error) {
	if err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	return s.Alarms(), nil
}
