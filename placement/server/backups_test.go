package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// fakeMaker makes backups in seconds, or fails as it is told.
type fakeMaker struct {
	mu   sync.Mutex
	made []string
	// begun is how many attempts were begun to make a backup.
	begun int
	// undone are the backups whose objects were removed.
	undone []string
	// stuck is the backup that cannot be undone, or a prefix of several; a try takes stuckFor.
	stuck    string
	stuckFor time.Duration
	// takes is how long a backup takes; fails is what becomes of an attempt.
	takes time.Duration
	fails func(attempt int) error
	// parents are those of the backups that were made. logs has the rounds of each log; breaks is what
	// becomes of a round.
	parents []string
	logs    map[string]int
	breaks  func() error
	expired []time.Time
	// ahead is how far the clock of the core is ahead of those of data nodes.
	ahead    time.Duration
	released []string
	ids      int
}

var errFinal = errors.New("there is no such bucket")

func (m *fakeMaker) Check(b *clusterpb.Backup) error {
	if strings.Contains(b.Target, "wrong") {
		return errFinal
	}
	return nil
}

func (m *fakeMaker) Latest(context.Context, *clusterpb.Backup) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.made) == 0 {
		return "", errors.New("make a full one first")
	}
	return m.made[len(m.made)-1], nil
}

// ofMember is a fakeMaker as one member has it, which makes one backup at a time. For a moment two
// members may take themselves for the leader.
type ofMember struct {
	*fakeMaker
	t      *testing.T
	active atomic.Int32
}

func (m *ofMember) Make(ctx context.Context, b *clusterpb.Backup,
	progress func(*clusterpb.Timestamp, *clusterpb.BackupProgress)) error {
	if m.active.Add(1) > 1 {
		m.t.Error("two backups at the same time on one member")
	}
	defer m.active.Add(-1)
	return m.fakeMaker.Make(ctx, b, progress)
}

func (m *fakeMaker) NewIdentity() (string, error) { return "secret", nil }

func (m *fakeMaker) Make(ctx context.Context, b *clusterpb.Backup,
	progress func(*clusterpb.Timestamp, *clusterpb.BackupProgress)) error {
	m.mu.Lock()
	m.begun++
	m.mu.Unlock()
	progress(nil, &clusterpb.BackupProgress{Step: "begin"})
	at := &clusterpb.Timestamp{Wall: 42}
	if b.Schedule != "" {
		at.Wall = uint64(time.Now().Add(-m.ahead).UnixNano())
	}
	progress(at, &clusterpb.BackupProgress{Step: "half", UnitsDone: 1,
		Units: 2})
	select {
	case <-time.After(m.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made, m.parents = append(m.made, b.Id), append(m.parents, b.Parent)
	if m.fails != nil {
		return m.fails(len(m.made))
	}
	return nil
}

func (m *fakeMaker) Restore(ctx context.Context, b *clusterpb.Backup,
	progress func(*clusterpb.Timestamp, *clusterpb.BackupProgress),
	save func(context.Context, []byte) error) error {
	if n := byte(len(b.Restore.Loaded)); n < 3 {
		return errors.Join(save(ctx, make([]byte, n+1)), errors.New("interrupted"))
	}
	return m.Make(ctx, b, progress)
}

func (m *fakeMaker) Passing(err error) bool { return !errors.Is(err, errFinal) }

func (m *fakeMaker) Undo(_ context.Context, b *clusterpb.Backup) error {
	m.mu.Lock()
	stuck := m.stuck != "" && strings.HasPrefix(b.Id, m.stuck)
	m.mu.Unlock()
	if stuck {
		time.Sleep(m.stuckFor)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if stuck {
		return errors.New("the target does not answer")
	}
	m.undone = append(m.undone, b.Id)
	return nil
}

func backupID(n int) string { return fmt.Sprintf("20260131T1200%02dZ-1a2b3c4d", n) }

func wanted(n int, change ...func(*clusterpb.Backup)) *clusterpb.CreateBackupRequest {
	b := &clusterpb.Backup{Id: backupID(n), Target: "file:///backups"}
	for _, f := range change {
		f(b)
	}
	return &clusterpb.CreateBackupRequest{Backup: b}
}

// withBackups runs a test with a core that makes backups.
func withBackups(t *testing.T,
	f func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		m := &fakeMaker{takes: 5 * time.Second}
		c.reconfigure(func(config *Config) { config.Backups = &ofMember{fakeMaker: m, t: t} })
		c.elect(c.members[0])
		f(t, c, client, m)
	})
}

// backupNow is how a backup is.
func backupNow(t *testing.T, client *coreclient.Client, n int) *clusterpb.Backup {
	t.Helper()
	r, err := client.ListBackups(t.Context(), &clusterpb.ListBackupsRequest{Id: backupID(n)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Backups[0]
}

func is(t *testing.T, client *coreclient.Client, n int, state clusterpb.BackupState) func() bool {
	return func() bool { return backupNow(t, client, n).State == state }
}

// Backups are made one after the other, told of while they are made, and asked for again without
// harm; answers do not have their identities.
func TestBackupsAreMade(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		encrypted := func(b *clusterpb.Backup) { b.Recipients = []string{"age1x"} }
		for n := range 3 {
			for range 2 {
				if _, err := client.CreateBackup(t.Context(), wanted(n, encrypted)); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.await("the first one to be half done", func() bool {
			b := backupNow(t, client, 0)
			return b.GetProgress().GetStep() == "half" && b.Progress.Units == 2 && b.Identity == ""
		})
		c.await("all to be complete", is(t, client, 2, clusterpb.BackupState_BACKUP_COMPLETE))
		if want := []string{backupID(0), backupID(1), backupID(2)}; !slices.Equal(m.made, want) {
			t.Errorf("made: %v", m.made)
		}
		b := backupNow(t, client, 0)
		if b.At.GetWall() != 42 || b.EndedUnixMs <= b.BeganUnixMs || b.KeepMillis == 0 {
			t.Errorf("%v", b)
		}
		_, err := client.CreateBackup(t.Context(), wanted(0))
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("another request with the same id: %v", err)
		}
		_, err = client.CreateBackup(t.Context(), wanted(0, encrypted, func(b *clusterpb.Backup) {
			b.Recipients, b.Restore = nil, &clusterpb.Restore{Backup: backupID(1)}
		}))
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("a restore with the id of a backup: %v", err)
		}
		r, err := client.CreateBackup(t.Context(), wanted(7, func(b *clusterpb.Backup) {
			b.Parent = "latest"
		}))
		if err != nil || r.Backup.Parent != backupID(2) {
			t.Errorf("%v: %v", r, err)
		}
	})
}

// A new leader continues a backup, and what may pass is tried again; what cannot pass fails.
func TestBackupsGoOn(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		if _, err := client.CreateBackup(t.Context(), wanted(1)); err != nil {
			t.Fatal(err)
		}
		c.await("it to be half done", func() bool {
			return backupNow(t, client, 1).GetProgress().GetStep() == "half"
		})
		c.elect(c.members[1])
		c.await("it to be complete", is(t, client, 1, clusterpb.BackupState_BACKUP_COMPLETE))

		m.fails = func(attempt int) error {
			if attempt < 4 {
				return errors.New("the target does not answer")
			}
			return nil
		}
		if _, err := client.CreateBackup(t.Context(), wanted(2)); err != nil {
			t.Fatal(err)
		}
		c.await("it to be complete", is(t, client, 2, clusterpb.BackupState_BACKUP_COMPLETE))

		m.fails = func(int) error { return errFinal }
		if _, err := client.CreateBackup(t.Context(), wanted(3)); err != nil {
			t.Fatal(err)
		}
		c.await("it to fail", is(t, client, 3, clusterpb.BackupState_BACKUP_FAILED))
		if b := backupNow(t, client, 3); b.Error != errFinal.Error() {
			t.Errorf("%v", b)
		}
	})
}

// The leader's metrics say when the backup under way made progress, and nothing once it has ended.
func TestBackupMetrics(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		moved := func() float64 {
			return gaugesOf(t, c.members[0], "tidemark_backup_")["progress_timestamp_seconds"]
		}
		if _, err := client.CreateBackup(t.Context(), wanted(1)); err != nil {
			t.Fatal(err)
		}
		c.await("it to be half done", func() bool {
			return backupNow(t, client, 1).GetProgress().GetStep() == "half"
		})
		if ago := float64(time.Now().Unix()) - moved(); ago < -1 || ago > m.takes.Seconds() {
			t.Errorf("progress was made %v s ago", ago)
		}
		c.await("it to be complete", is(t, client, 1, clusterpb.BackupState_BACKUP_COMPLETE))
		c.await("no progress to be shown", func() bool { return moved() == 0 })
	})
}

// A restore goes on with what it has loaded, and tells no identities.
func TestRestoreGoesOn(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		if _, err := client.CreateBackup(t.Context(), wanted(1, func(b *clusterpb.Backup) {
			b.Restore = &clusterpb.Restore{Backup: backupID(0), Identities: "secret"}
		})); err != nil {
			t.Fatal(err)
		}
		if b := backupNow(t, client, 1); b.Restore.Identities != "" {
			t.Errorf("%v", b)
		}
		c.await("it to be complete", is(t, client, 1, clusterpb.BackupState_BACKUP_COMPLETE))
		if !slices.Equal(m.made, []string{backupID(1)}) {
			t.Errorf("made: %v", m.made)
		}
	})
}

// A backup that is cancelled ends at once, and its objects are removed.
func TestBackupsAreCancelled(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		m.takes = time.Hour
		for n := range 2 {
			if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
				t.Fatal(err)
			}
		}
		c.await("the first one to be half done", func() bool {
			return backupNow(t, client, 0).GetProgress().GetStep() == "half"
		})
		for n := range 2 {
			for range 2 {
				if _, err := client.CancelBackup(t.Context(),
					&clusterpb.CancelBackupRequest{Id: backupID(n)}); err != nil {
					t.Fatal(err)
				}
			}
			c.await("it to be cancelled", is(t, client, n, clusterpb.BackupState_BACKUP_CANCELLED))
		}
		if want := []string{backupID(0), backupID(1)}; !slices.Equal(m.undone, want) {
			t.Errorf("undone: %v", m.undone)
		}
		if _, err := client.CancelBackup(t.Context(),
			&clusterpb.CancelBackupRequest{Id: backupID(9)}); status.Code(err) != codes.NotFound {
			t.Error(err)
		}
	})
}

// A backup that is cancelled while it waits for another one is not made, whenever its turn comes.
func TestBackupCancelledInTheQueue(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		m.takes = 10 * time.Second
		m.fails = func(made int) error {
			if made < 3 {
				return errors.New("interrupted")
			}
			return nil
		}
		begun := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.begun
		}
		for n := range 2 {
			if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
				t.Fatal(err)
			}
			c.await("the first one to be made", func() bool { return begun() == 1 })
		}
		// Both were there when the step began that makes the first one again.
		c.await("the first one to be made again", func() bool { return begun() == 2 })
		if _, err := client.CancelBackup(t.Context(),
			&clusterpb.CancelBackupRequest{Id: backupID(1)}); err != nil {
			t.Fatal(err)
		}
		c.await("the first to be complete", is(t, client, 0, clusterpb.BackupState_BACKUP_COMPLETE))
		c.await("the other to be cancelled", is(t, client, 1, clusterpb.BackupState_BACKUP_CANCELLED))
		m.mu.Lock()
		defer m.mu.Unlock()
		if slices.Contains(m.made, backupID(1)) {
			t.Errorf("made: %v", m.made)
		}
	})
}

// A backup whose target does not answer holds up no other.
func TestStuckBackup(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		m.stuck = backupID(0)
		for n := range 2 {
			if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				if _, err := client.CancelBackup(t.Context(),
					&clusterpb.CancelBackupRequest{Id: backupID(n)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.await("the second one to be complete", is(t, client, 1,
			clusterpb.BackupState_BACKUP_COMPLETE))
		m.mu.Lock()
		m.stuck = ""
		m.mu.Unlock()
		c.await("the first one to be cancelled", is(t, client, 0,
			clusterpb.BackupState_BACKUP_CANCELLED))
	})
}

// Cancelled backups whose target never answers hold up no other, and end after an hour or so.
func TestTargetNeverAnswers(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		const stuck = 4
		m.stuck, m.stuckFor = strings.TrimSuffix(backupID(0), "0Z-1a2b3c4d"), 2*time.Minute
		for n := range stuck {
			if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
				t.Fatal(err)
			}
			if _, err := client.CancelBackup(t.Context(),
				&clusterpb.CancelBackupRequest{Id: backupID(n)}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for n := 20; n < 40; n++ {
			asked := time.Now()
			if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
				t.Fatal(err)
			}
			c.awaitFor(time.Hour, "another backup", is(t, client, n,
				clusterpb.BackupState_BACKUP_COMPLETE))
			if took := time.Since(asked); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
		}
		for n := range stuck {
			c.awaitFor(3*time.Hour, "it to be cancelled", is(t, client, n,
				clusterpb.BackupState_BACKUP_CANCELLED))
			if b := backupNow(t, client, n); !strings.Contains(b.Error, "tidemark backup delete") {
				t.Errorf("%v", b)
			}
		}
		if took := time.Since(began); took < time.Hour || took > 2*time.Hour {
			t.Errorf("they were given up after %v", took)
		}
	})
}

// A backup that makes no progress is given up after an hour, also while others are made.
func TestBackupIsGivenUp(t *testing.T) {
	withBackups(t, func(t *testing.T, c *core, client *coreclient.Client, m *fakeMaker) {
		m.takes = 95 * time.Second
		m.fails = func(attempt int) error {
			if m.made[attempt-1] == backupID(0) {
				return errors.New("the target does not answer")
			}
			return nil
		}
		attempts := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.made)
		}
		began := time.Now()
		if _, err := client.CreateBackup(t.Context(), wanted(0)); err != nil {
			t.Fatal(err)
		}
		for n := 0; backupNow(t, client, 0).GetState() != clusterpb.BackupState_BACKUP_FAILED; n++ {
			if time.Since(began) > 90*time.Minute {
				t.Fatalf("it is still tried, %d times so far", attempts())
			}
			if n > 0 && n < 60 {
				if _, err := client.CreateBackup(t.Context(), wanted(n)); err != nil {
					t.Fatal(err)
				}
			}
			before := attempts()
			c.await("an attempt", func() bool { return attempts() > before })
		}
		if time.Since(began) < time.Hour {
			t.Errorf("it is given up after %v", time.Since(began))
		}
	})
}

// Mistakes are refused, and nothing is recorded.
func TestBackupMistakes(t *testing.T) {
	withBackups(t, func(t *testing.T, _ *core, client *coreclient.Client, _ *fakeMaker) {
		for name, change := range map[string]func(*clusterpb.Backup){
			"no id":       func(b *clusterpb.Backup) { b.Id = "" },
			"a path":      func(b *clusterpb.Backup) { b.Id = "../../../../etc/passwd12" },
			"no target":   func(b *clusterpb.Backup) { b.Target = "" },
			"a directory": func(b *clusterpb.Backup) { b.Target = "/backups" },
			"credentials": func(b *clusterpb.Backup) { b.Target = "s3://key:secret@bucket" },
			"the maker's": func(b *clusterpb.Backup) { b.Target = "file:///wrong" },
			"a long keep": func(b *clusterpb.Backup) { b.KeepMillis = 1 << 40 },
			"many names":  func(b *clusterpb.Backup) { b.Include = make([]string, 2000) },
			"no UTF-8":    func(b *clusterpb.Backup) { b.Target = "file:///\xff" },
		} {
			if _, err := client.CreateBackup(t.Context(), wanted(1, change)); err == nil {
				t.Errorf("%s is taken", name)
			}
		}
		_, err := client.CreateBackup(t.Context(), wanted(1, func(b *clusterpb.Backup) {
			b.Parent = "latest"
		}))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "full one") {
			t.Error(err)
		}
		r, err := client.ListBackups(t.Context(), &clusterpb.ListBackupsRequest{})
		if err != nil || len(r.Backups) != 0 {
			t.Errorf("%v: %v", r, err)
		}
	})
}
