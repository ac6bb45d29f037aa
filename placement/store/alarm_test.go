package store

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Alarms outlive a restart, come with snapshots, and refuse what they are for, until they are
// ended.
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
		if _, err := s.Do(t.Context(), put); !errors.Is(err, command.ErrNoSpace) {
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
		if err := s.ReadState(func(r *tables.Reader) (err error) {
			read, err = r.Alarms()
			return err
		}); err != nil || !slices.EqualFunc(read, list, func(a, b *storepb.Alarm) bool {
			return command.AlarmOrder(a, b) == 0
		}) {
			t.Errorf("the database has %v, %v", read, err)
		}
	})
}

// What is asked for takes the place of an automatic alarm, which then does not end by itself.
func TestAlarmThatIsAskedForStays(t *testing.T) {
	_, s := one(t, nil)
	automatic := &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE, Automatic: true}
	asked := &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE}
	do(t, s, RaiseAlarm(automatic))
	if a := do(t, s, RaiseAlarm(asked)).Alarm; a == nil || a.Automatic {
		t.Errorf("raised by request: %v", a)
	}
	if a := do(t, s, RaiseAlarm(automatic)).Alarm; a == nil || a.Automatic {
		t.Errorf("raised automatically again: %v", a)
	}
	if a := do(t, s, EndAlarm(automatic)).Alarm; a != nil {
		t.Errorf("ended automatically: %v", a)
	}
	if err := s.ReadState(func(r *tables.Reader) error {
		list, err := r.Alarms()
		if len(list) != 1 || list[0].Automatic || len(s.Alarms()) != 1 {
			t.Errorf("the database has %v", list)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if a := do(t, s, EndAlarm(asked)).Alarm; a == nil || len(s.Alarms()) != 0 {
		t.Errorf("ended by request: %v, and there are %v", a, s.Alarms())
	}
}

// Alarms refuse what an import brings in, and let it be abandoned.
func TestAlarmsRefuseImports(t *testing.T) {
	for _, c := range []struct {
		alarm         storepb.Alarm_Type
		filled, empty error
	}{{storepb.Alarm_NO_SPACE, command.ErrNoSpace, nil}, {storepb.Alarm_CORRUPT, command.ErrCorrupt,
		command.ErrCorrupt}} {
		_, s := one(t, nil)
		do(t, s, Import(&storepb.Import{Id: 7, Step: 1, Revision: 1000}))
		do(t, s, RaiseAlarm(&storepb.Alarm{Member: 1, Type: c.alarm}))
		for _, m := range []*storepb.Import{
			{Id: 7, Step: 2, Revision: 1000, Versions: []*storepb.ImportedVersion{{Key: []byte("k"),
				ModRevision: 5, CreateRevision: 5, Version: 1, Value: []byte("v")}}},
			{Id: 7, Step: 2, Revision: 1000,
				Leases: []*storepb.ImportedLease{{Id: 5, TtlMillis: 10_000}}},
		} {
			if _, err := s.Do(t.Context(), Import(m)); !errors.Is(err, c.filled) {
				t.Errorf("%v: %v is refused with %v", c.alarm, m, err)
			}
			// Also by what applies it.
			if _, err := s.DoOwn(t.Context(), Import(m)); !errors.Is(err, c.filled) {
				t.Errorf("%v: %v is applied: %v", c.alarm, m, err)
			}
		}
		if _, err := s.Do(t.Context(), Import(&storepb.Import{Id: 7, Step: 2,
			Revision: 1000})); !errors.Is(err, c.empty) {
			t.Errorf("%v: a step without anything: %v", c.alarm, err)
		}
		do(t, s, Import(&storepb.Import{Id: 7, Abandon: true}))
	}
}

// While an alarm refuses compactions, the leader proposes none; it goes on when the alarm ends.
func TestNoCompactionIsProposedDuringAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		corrupt := &storepb.Alarm{Member: 1, Type: storepb.Alarm_CORRUPT}
		for range 100 {
			put(t, s, "k", "v")
		}
		// The alarm comes between the first part of a compaction and the next one.
		c.setLags(true)
		for _, cmd := range []*storepb.Command{
			compactBy(&storepb.Compact{Revision: s.Revision(), Events: 10}), RaiseAlarm(corrupt)} {
			go func() { _, _ = s.DoOwn(t.Context(), cmd) }()
			synctest.Wait()
		}
		entries := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.log)
		}
		before := entries()
		c.setLags(false)
		if s.Compacting() == nil {
			t.Fatal("the compaction has left nothing")
		}
		time.Sleep(time.Minute)
		if n := entries() - before; n > 0 {
			t.Errorf("%d entries while nothing can be written", n)
		}
		do(t, s, EndAlarm(corrupt))
		if err := s.AwaitCompaction(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
