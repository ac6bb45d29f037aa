package store

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarms outlive a restart, come with snapshots, and refuse what they are for, until they are ended.
func TestAlarmsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		mine := &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE, Automatic: true}
		asked := &storepb.Alarm{Member: 2, Type: storepb.Alarm_NO_SPACE}
		change := func(c *storepb.Command) *storepb.Alarm {
			t.Helper()
			result, err := s.Do(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return result.Alarm
		}
		if a := change(RaiseAlarm(mine)); !a.GetAutomatic() {
			t.Errorf("raised: %v", a)
		}
		change(RaiseAlarm(asked))
		put := If(nil, []*storepb.Op{Put([]byte("k"), []byte("v"))}, nil)
		if _, err := s.Do(t.Context(), put); !errors.Is(err, ErrNoSpace) {
			t.Errorf("a put: %v", err)
		}
		if _, err := s.Do(t.Context(), If(nil, []*storepb.Op{Delete([]byte("k"))}, nil)); err != nil {
			t.Errorf("a deletion: %v", err)
		}
		// An automatic end ends what was raised automatically, and nothing else.
		if a := change(EndAlarm(&storepb.Alarm{Member: 2, Type: storepb.Alarm_NO_SPACE,
			Automatic: true})); a != nil {
			t.Errorf("ended: %v", a)
		}
		if a := change(EndAlarm(mine)); a.GetMember() != 1 {
			t.Errorf("ended: %v", a)
		}
		list, err := s.AlarmsNow(t.Context())
		if err != nil || len(list) != 1 || list[0].Member != 2 {
			t.Errorf("%v, %v", list, err)
		}
		var read []*storepb.Alarm
		if err := s.read(func(r *reader) (err error) {
			read, err = loadAlarms(r)
			return err
		}); err != nil || !slices.EqualFunc(read, list, func(a, b *storepb.Alarm) bool {
			return alarmOrder(a, b) == 0
		}) {
			t.Errorf("the database has %v, %v", read, err)
		}
	})
}
