package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/space"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// leader is a Store that serves, and keeps what it is to do. Nothing is read from it.
type leader struct {
	alarms []*storepb.Alarm
	done   []*storepb.Command
}

func (*leader) ReadState(func(*tables.Reader) error) error { panic("the state is read") }
func (l *leader) Alarms() []*storepb.Alarm                 { return l.alarms }
func (*leader) Members() *storepb.Members                  { return nil }
func (*leader) Confirm(context.Context) error              { return nil }

func (*leader) Leadership() (execute.Leadership, <-chan struct{}) {
	return execute.Leadership{Term: 1, Leader: 1, IsLeader: true, Serving: true}, nil
}

func (l *leader) DoOwn(_ context.Context, c *storepb.Command) (*storepb.Result, error) {
	l.done = append(l.done, c)
	return &storepb.Result{}, nil
}

func gate() (*Gate, *leader) {
	l := &leader{}
	g := New("a store", l, lease.New(func() int64 { return 1 }, time.Minute), 10)
	g.MembersKnow(command.NewestFormat)
	return g, l
}

func put(size int, under int64) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{Success: []*storepb.Op{
		{Op: &storepb.Op_Put{Put: &storepb.Put{Key: []byte("k"), Value: make([]byte, size),
			Lease: under}}}}}}}
}

// A put that would cross the quota is refused, whatever others have reserved and not used, and the
// alarm of the member is raised.
func TestQuota(t *testing.T) {
	g, l := gate()
	g.SetQuota(Quota{Bytes: 2 * space.Put(1, 100), Member: 7})
	var reserved []uint64
	for range 2 {
		bytes, err := g.Reserve(t.Context(), put(100, 0))
		if err != nil || bytes != space.Put(1, 100) {
			t.Fatalf("%d bytes, %v", bytes, err)
		}
		reserved = append(reserved, bytes)
	}
	if _, err := g.Reserve(t.Context(), put(1, 0)); !errors.Is(err, command.ErrNoSpace) {
		t.Errorf("above the quota: %v", err)
	}
	if len(l.done) != 1 || l.done[0].GetAlarmChange().GetAlarm().GetMember() != 7 {
		t.Errorf("done by itself: %v", l.done)
	}
	g.Release(reserved[0])
	g.Applied(space.Put(1, 100), reserved[1], 0)
	if _, err := g.Reserve(t.Context(), put(100, 0)); err != nil {
		t.Errorf("with what was given back: %v", err)
	}
}

// What a member may not know, and what an alarm forbids, is refused without a look at the state.
func TestCheck(t *testing.T) {
	g, l := gate()
	alarm := &storepb.Command{Op: &storepb.Command_AlarmChange{AlarmChange: &storepb.AlarmChange{
		Alarm: &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE}}}}
	if err := g.Check(t.Context(), alarm); err != nil {
		t.Error(err)
	}
	if !g.MembersKnow(command.LeastFormat) {
		t.Error("the format has not changed")
	}
	if err := g.Check(t.Context(), alarm); !errors.Is(err, command.ErrOldMembers) {
		t.Errorf("a command that a member may not know: %v", err)
	}
	if err := g.Check(t.Context(), put(1, 0)); err != nil {
		t.Error(err)
	}
	g.MembersKnow(command.NewestFormat)
	level := &release.Active{}
	g.FollowLevel(level)
	if err := g.Check(t.Context(), alarm); !errors.Is(err, command.ErrOldMembers) ||
		!strings.Contains(err.Error(), "upgrade finalize") || g.MayUse(command.CompactFormat) {
		t.Errorf("before the upgrade is finalised: %v", err)
	}
	level.Raise(release.CoreAlarms.Level)
	if err := g.Check(t.Context(), alarm); err != nil {
		t.Error(err)
	}
	l.alarms = []*storepb.Alarm{alarm.GetAlarmChange().Alarm}
	if err := g.Check(t.Context(), put(1, 0)); !errors.Is(err, command.ErrNoSpace) {
		t.Errorf("a put during an alarm: %v", err)
	}
}
