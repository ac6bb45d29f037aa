package apply

import (
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// maxAlarms bounds the number of alarms.
const maxAlarms = 256

// currentAlarms are the alarms after the entries applied so far.
func (a *Application) currentAlarms() []*storepb.Alarm {
	if a.Alarms != nil {
		return *a.Alarms
	}
	return a.machine.store.Alarms()
}

// changeAlarm applies an AlarmChange.
func (a *Application) changeAlarm(c *storepb.AlarmChange, result *storepb.Result) error {
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
	key := a.machine.layout.Alarm(alarm)
	var next []*storepb.Alarm
	switch {
	case c.End && (!there || alarm.Automatic && !now[at].Automatic):
		result.Alarm = nil
		return nil
	case c.End:
		next = slices.Delete(slices.Clone(now), at, at+1)
		a.Alarms = &next
		return a.batch.Delete(key, nil)
	case there && (alarm.Automatic || !now[at].Automatic):
		return nil
	case there:
		// The client that asks for it ends it.
		next = slices.Clone(now)
		next[at] = alarm
		a.Alarms, result.Alarm = &next, alarm
		return a.set(key, alarm)
	case len(now) >= maxAlarms:
		command.Refuse(result, storepb.Code_TOO_LARGE, "there are %d alarms, and can be no more",
			len(now))
		return nil
	}
	next = slices.Insert(slices.Clone(now), at, alarm)
	a.Alarms, result.Alarm = &next, alarm
	return a.set(key, alarm)
}
