package store

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/compaction"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// While a member may not know of alarms, none is raised, on the leader or by another member, and
// each caller is told why. One that is in the state already can be ended.
func TestNoAlarmsThatAMemberMayNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := linked(t, 3, func(config *Config) { config.MembersKnow = LeastFormat })
		c.elect(c.members[0])
		leader, other := c.members[0].store, c.members[1].store
		alarm := &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE}
		all := map[string]func(*storepb.Command) error{
			"Do": func(cmd *storepb.Command) error {
				_, err := leader.Do(t.Context(), cmd)
				return err
			},
			"Execute elsewhere": func(cmd *storepb.Command) error {
				_, err := other.Execute(t.Context(), cmd)
				return err
			},
		}
		defer c.members[1].keepUp()()
		for name, do := range all {
			for _, cmd := range []*storepb.Command{RaiseAlarm(alarm), EndAlarm(alarm), Import(
				&storepb.Import{Id: 1, Step: 1, Revision: 5, End: true,
					Enable: &storepb.AuthEnable{Key: make([]byte, 32)}})} {
				if err := do(cmd); !errors.Is(err, command.ErrOldMembers) {
					t.Errorf("%s: %v: %v", name, cmd, err)
				}
			}
			leader.MembersKnow(command.AlarmFormat)
			if err := do(RaiseAlarm(alarm)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			leader.MembersKnow(0)
			if err := do(EndAlarm(alarm)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// While a member may not know of compactions in parts, whole revisions are compacted, however large
// they are. What is left of a part is removed nevertheless.
func TestWholeRevisionsAreCompactedForOldMembers(t *testing.T) {
	c, s := one(t, func(config *Config) { config.MembersKnow = command.AlarmFormat })
	const large = compaction.StepEvents + 1
	write := func() {
		var ops []*storepb.Op
		for k := range large {
			ops = append(ops, Put(fmt.Appendf(nil, "%05d", k), nil))
		}
		if _, err := s.DoOwn(t.Context(), writes(ops...)); err != nil {
			t.Fatal(err)
		}
	}
	compact := func() (parts int) {
		write()
		put(t, s, "last", "")
		c.mu.Lock()
		from := len(c.log)
		c.mu.Unlock()
		do(t, s, Compact(s.Revision()))
		if err := s.AwaitCompaction(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range c.log[from:] {
			if _, format, err := command.Decode(e.Data); err != nil || format == command.CompactFormat {
				parts++
			}
		}
		return parts
	}
	if n := compact(); n > 0 {
		t.Errorf("%d commands of parts", n)
	}
	s.MembersKnow(command.CompactFormat)
	if n := compact(); n == 0 {
		t.Error("no parts, though all members know of them")
	}
	s.MembersKnow(command.AlarmFormat)
	write()
	if _, err := s.DoOwn(t.Context(), compactBy(&storepb.Compact{Revision: s.Revision(),
		Events: 10})); err != nil {
		t.Fatal(err)
	}
	if err := s.AwaitCompaction(t.Context()); err != nil {
		t.Fatal(err)
	}
}
