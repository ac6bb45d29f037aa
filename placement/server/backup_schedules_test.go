package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

var errBroken = errors.New("history was collected")

func (m *fakeMaker) Resolve(ctx context.Context, b *clusterpb.Backup) (err error) {
	b.Restore.Backup, err = m.Latest(ctx, b)
	return err
}

func (m *fakeMaker) NewID(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids++
	return fmt.Sprintf("%s-%08x", now.UTC().Format("20060102T150405Z"), m.ids)
}

// fakeLog is a log of a fakeMaker.
type fakeLog struct {
	m  *fakeMaker
	id string
	at time.Time
}

func (m *fakeMaker) OpenLog(_ context.Context, s *clusterpb.BackupSchedule) (backups.Log, error) {
	return &fakeLog{m: m, id: s.Log}, nil
}

func (l *fakeLog) Round(context.Context) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.breaks != nil {
		if err := l.m.breaks(); err != nil {
			return err
		}
	}
	if l.m.logs == nil {
		l.m.logs = make(map[string]int)
	}
	l.m.logs[l.id]++
	l.at = time.Now().Add(-l.m.ahead)
	return nil
}

func (l *fakeLog) End() (at, round *clusterpb.Timestamp) {
	return &clusterpb.Timestamp{Wall: uint64(l.at.UnixNano())}, &clusterpb.Timestamp{Wall: 1}
}

func (*fakeLog) Close() {}

func (m *fakeMaker) Broken(err error) bool { return errors.Is(err, errBroken) }

func (m *fakeMaker) Expire(_ context.Context, _ *clusterpb.BackupSchedule,
	keep time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expired = append(m.expired, keep)
	return 1, nil
}

func (m *fakeMaker) Release(_ context.Context, s *clusterpb.BackupSchedule) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = append(m.released, s.Name)
	return nil
}

// snapshot copies what a fakeMaker has done.
func (m *fakeMaker) snapshot() (made, parents []string, rounds int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.logs {
		rounds += n
	}
	return slices.Clone(m.made), slices.Clone(m.parents), rounds
}

func hours(n float64) uint64 { return uint64(n * float64(time.Hour.Milliseconds())) }

func nightly() *clusterpb.BackupSchedule {
	return &clusterpb.BackupSchedule{Name: "nightly", Target: "file:///backups",
		FullMillis: hours(1), IncrementalMillis: hours(1. / 6), LogMillis: 10_000,
		RetentionMillis: hours(14 * 24)}
}

func setSchedule(t *testing.T, client *coreclient.Client,
	r *clusterpb.SetBackupScheduleRequest) *clusterpb.BackupSchedule {
	t.Helper()
	answer, err := client.SetBackupSchedule(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Schedule
}

func scheduleNow(t *testing.T, client *coreclient.Client) *clusterpb.BackupSchedule {
	t.Helper()
	r, err := client.ListBackupSchedules(t.Context(), &clusterpb.ListBackupSchedulesRequest{})
	if err != nil || len(r.Schedules) != 1 {
		t.Fatalf("%v: %v", r, err)
	}
	return r.Schedules[0]
}

// A schedule begins with a full backup; incremental ones and full ones follow in their time, each
// continues the one before, and the log goes on beside them, also under another leader. What is
// removed is older than what is to be kept.
func TestScheduleMakesBackups(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		began := time.Now()
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: nightly(), OnlyNew: true})
		after := func(d time.Duration) func() bool {
			return func() bool { return time.Since(began) >= d }
		}
		c.awaitFor(time.Hour, "the first backups", after(21*time.Minute))
		made, parents, rounds := m.snapshot()
		if len(made) != 3 || parents[0] != "" || parents[1] != made[0] || parents[2] != made[1] {
			t.Fatalf("made %v, with the parents %v", made, parents)
		}
		if want := 21 * 6; rounds < want-2 || rounds > want+2 {
			t.Errorf("the log has %d rounds", rounds)
		}
		c.elect(c.members[1])
		c.awaitFor(2*time.Hour, "hours to pass", after(85*time.Minute))
		made, parents, later := m.snapshot()
		full := 0
		for i, parent := range parents {
			switch parent {
			case "":
				full++
			case made[i-1]:
			default:
				t.Errorf("%s continues %s", made[i], parent)
			}
		}
		if full != 2 || len(made) < 8 || len(made) > 9 {
			t.Errorf("%d full ones of %d", full, len(made))
		}
		if later-rounds < 60*6 {
			t.Errorf("the log has %d rounds more under the second leader", later-rounds)
		}
		s := scheduleNow(t, client)
		if s.Last != made[len(made)-1] || s.Error != "" || s.LogError != "" || s.Log == "" {
			t.Errorf("%v", s)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if n := len(m.expired); n != 2 || time.Since(m.expired[n-1]) < 14*24*time.Hour {
			t.Errorf("removed %d times, the last time what is older than %v", n, m.expired[n-1])
		}
	})
}

// If the clock of the core's leader is ahead, nothing is removed that is to be kept by the clocks of
// the data nodes.
func TestRetentionWithWrongClock(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		m.ahead = 30 * 24 * time.Hour
		began := time.Now()
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: nightly(), OnlyNew: true})
		c.awaitFor(3*time.Hour, "hours to pass",
			func() bool { return time.Since(began) > 130*time.Minute })
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.expired) < 2 {
			t.Errorf("removed %d times", len(m.expired))
		}
		for _, keep := range m.expired {
			if age := time.Now().Add(-m.ahead).Sub(keep); age < 14*24*time.Hour {
				t.Errorf("what is older than %v was removed", age)
			}
		}
	})
}

// A backup that fails is removed and tried again, later each time; an incremental one whose chain
// is broken is followed by a full one. Nothing is made while the schedule is paused.
func TestScheduleAfterFailures(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		s := nightly()
		s.LogMillis = 0
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: s})
		c.awaitFor(time.Hour, "the first backup", func() bool {
			return scheduleNow(t, client).Last != ""
		})
		m.mu.Lock()
		m.fails = func(n int) error {
			if n == 2 {
				return errFinal
			}
			if n == 3 {
				return fmt.Errorf("%w, %w", errFinal, errBroken)
			}
			return nil
		}
		m.mu.Unlock()
		c.awaitFor(2*time.Hour, "the second backup to fail", func() bool {
			s := scheduleNow(t, client)
			return s.Failures == 1 && strings.Contains(s.Error, "bucket") && !s.Broken
		})
		c.awaitFor(time.Hour, "the third one to break the chain", func() bool {
			return scheduleNow(t, client).Broken
		})
		c.awaitFor(time.Hour, "a full one", func() bool { return scheduleNow(t, client).Failures == 0 })
		made, parents, _ := m.snapshot()
		if len(made) != 4 || parents[1] != made[0] || parents[2] != made[0] || parents[3] != "" {
			t.Fatalf("made %v, with the parents %v", made, parents)
		}
		if !slices.Equal(m.undone, made[1:3]) {
			t.Errorf("removed: %v", m.undone)
		}
		paused := true
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Paused: &paused,
			Schedule: &clusterpb.BackupSchedule{Name: "nightly"}})
		began := time.Now()
		c.awaitFor(time.Hour, "time to pass", func() bool {
			return time.Since(began) > 30*time.Minute
		})
		if made, _, _ = m.snapshot(); len(made) != 4 {
			t.Errorf("made %v while it is paused", made)
		}
		paused = false
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Paused: &paused,
			Schedule: &clusterpb.BackupSchedule{Name: "nightly"}})
		c.awaitFor(time.Hour, "the next one", func() bool {
			made, parents, _ = m.snapshot()
			return len(made) == 5 && parents[4] == made[3]
		})
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Now: true,
			Schedule: &clusterpb.BackupSchedule{Name: "nightly"}})
		c.awaitFor(time.Minute, "one that is asked for", func() bool {
			made, _, _ = m.snapshot()
			return len(made) == 6
		})
	})
}

// A log whose history was collected is followed by another one, and by a backup; other failures are
// told of, and pass.
func TestScheduleLogBreaks(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: nightly()})
		c.awaitFor(time.Minute, "the log to begin", func() bool {
			s := scheduleNow(t, client)
			return s.LogAt != nil && s.Last != ""
		})
		first := scheduleNow(t, client)
		m.mu.Lock()
		m.breaks = func() error { return errors.New("the target does not answer") }
		m.mu.Unlock()
		c.awaitFor(time.Minute, "the failure to be told of", func() bool {
			return strings.Contains(scheduleNow(t, client).LogError, "does not answer")
		})
		m.mu.Lock()
		m.breaks = nil
		m.mu.Unlock()
		c.awaitFor(2*time.Minute, "the log to go on", func() bool {
			s := scheduleNow(t, client)
			return s.LogError == "" && s.Log == first.Log && s.LogAt.Wall > first.LogAt.Wall
		})
		m.mu.Lock()
		m.breaks = func() error { m.breaks = nil; return errBroken }
		m.mu.Unlock()
		c.awaitFor(2*time.Minute, "another log and a backup", func() bool {
			s := scheduleNow(t, client)
			return s.Log != first.Log && s.LogAt != nil && s.Last != first.Last
		})
	})
}

// The same settings continue the log, other ones begin another; a deleted schedule keeps nothing.
func TestScheduleIsChanged(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		one := setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: nightly()})
		again := nightly()
		again.FullMillis = hours(2)
		same := setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: again})
		again.Recipients = []string{"age1x"}
		other := setSchedule(t, client, &clusterpb.SetBackupScheduleRequest{Schedule: again})
		if same.Log != one.Log || other.Log == one.Log || other.Identity != "" {
			t.Errorf("%v, %v, %v", one, same, other)
		}
		_, err := client.SetBackupSchedule(t.Context(), &clusterpb.SetBackupScheduleRequest{
			Schedule: nightly(), OnlyNew: true})
		if status.Code(err) != codes.AlreadyExists {
			t.Error(err)
		}
		for name, change := range map[string]func(*clusterpb.BackupSchedule){
			"no name":      func(s *clusterpb.BackupSchedule) { s.Name = "" },
			"a path":       func(s *clusterpb.BackupSchedule) { s.Name = "../x" },
			"no full ones": func(s *clusterpb.BackupSchedule) { s.FullMillis = 0 },
			"rare ones":    func(s *clusterpb.BackupSchedule) { s.IncrementalMillis = hours(1) },
			"a fast log":   func(s *clusterpb.BackupSchedule) { s.LogMillis = 10 },
			"short":        func(s *clusterpb.BackupSchedule) { s.RetentionMillis = hours(.9) },
			"too long":     func(s *clusterpb.BackupSchedule) { s.FullMillis = 1 << 62 },
			"the maker's":  func(s *clusterpb.BackupSchedule) { s.Target = "file:///wrong" },
		} {
			s := nightly()
			change(s)
			if _, err := client.SetBackupSchedule(t.Context(),
				&clusterpb.SetBackupScheduleRequest{Schedule: s}); status.Code(err) !=
				codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
		c.awaitFor(time.Minute, "the backup to be made", func() bool {
			s := scheduleNow(t, client)
			return s.Last != "" && s.Running == ""
		})
		if _, err := client.DeleteBackupSchedule(t.Context(),
			&clusterpb.DeleteBackupScheduleRequest{Name: "nightly"}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.released, []string{"nightly"}) {
			t.Errorf("%v", m.released)
		}
		_, err = client.DeleteBackupSchedule(t.Context(),
			&clusterpb.DeleteBackupScheduleRequest{Name: "nightly"})
		if status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	})
}
