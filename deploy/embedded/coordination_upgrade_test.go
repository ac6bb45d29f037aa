package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/offline"
	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// upgraded is a core of some members, each of which runs in an older version, which knows of no
// coordination store, or in this one.
type upgraded struct {
	t       *testing.T
	network *memnet.Network
	disks   []*vfs.MemFS
	running []*Server
	// logger is that of the members that start from now on; nil: they have none.
	logger *slog.Logger
	// olderCommands: the next member that starts does not say which commands it knows.
	olderCommands bool
}

func (u *upgraded) address(i int) string { return fmt.Sprintf("core%d:7400", i) }

// start starts a member again.
func (u *upgraded) start(i int, older bool) {
	u.t.Helper()
	u.stop(i)
	config := onlyServer(u.disks[i])
	config.Listen, config.NewListener = u.address(i), u.network.Listen
	config.Dial, config.Roles = u.network.Dialer(fmt.Sprintf("core%d", i)), []string{RoleCore}
	config.Core, config.withoutCoordination = nil, older
	config.olderCommands = u.olderCommands
	config.levels = &afterThose
	if u.logger != nil {
		config.Logger = u.logger
	}
	for j := range u.disks {
		config.Core = append(config.Core, u.address(j))
	}
	s, err := StartServer(u.t.Context(), config)
	if err != nil {
		u.t.Fatal(err)
	}
	u.running[i] = s
}

func (u *upgraded) stop(i int) {
	u.t.Helper()
	if s := u.running[i]; s != nil {
		if err := s.Stop(context.Background()); err != nil {
			u.t.Error(err)
		}
		u.running[i] = nil
	}
}

func (u *upgraded) await(what string, holds func() bool) {
	u.t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	u.t.Fatalf("waited in vain: %s", what)
}

func (u *upgraded) any(is func(*Server) bool) bool {
	for _, s := range u.running {
		if s != nil && is(s) {
			return true
		}
	}
	return false
}

func (u *upgraded) open() (n int) {
	for _, s := range u.running {
		if s != nil && s.member.coordination() != nil {
			n++
		}
	}
	return n
}

// TestUpgradeFoundsCoordination: the directories of an older version have no coordination store. It
// is founded, once, when the last member that answers is upgraded, and not before; until then the
// core goes on with members of both versions. A member that goes back to the older version ignores
// what it is sent for the store.
func TestUpgradeFoundsCoordination(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpgraded(t, members)
				defer u.close()
				for i := range members {
					u.start(i, true)
				}
				leads := func() bool { return u.any((*Server).LeadsCore) }
				u.await("the core is formed", leads)
				for i := range members {
					if n := u.open(); n > 0 {
						t.Fatalf("founded with %d members that do not know of it", members-i)
					}
					u.start(i, false)
					u.await("the core has a leader", leads)
					if i < members-1 {
						time.Sleep(10 * time.Second) // virtual; a leader looks every five
					}
				}
				u.await("it is founded", func() bool { return u.open() == members })
				u.put("k", "v")
				if members == 1 {
					return
				}
				u.start(0, true)
				time.Sleep(10 * time.Second) // virtual
				if err := u.running[0].Err(); err != nil || u.running[0].member.coordination() != nil {
					t.Fatalf("an older member that is sent what it does not know: %v", err)
				}
				u.start(0, false)
				u.await("it has the key", func() bool {
					value, err := u.running[0].GetCoordination([]byte("k"))
					return err == nil && string(value) == "v"
				})
			})
		})
	}
}

// newUpgraded makes a core of some members, none of which runs.
func newUpgraded(t *testing.T, members int) *upgraded {
	u := &upgraded{t: t, network: memnet.New(), running: make([]*Server, members)}
	u.network.SetDefaultLatency(200 * time.Microsecond)
	for range members {
		u.disks = append(u.disks, vfs.NewCrashableMem())
	}
	return u
}

// close stops all members.
func (u *upgraded) close() {
	for i := range u.running {
		u.stop(i)
	}
}

// put writes a key of the coordination store.
func (u *upgraded) put(key, value string) {
	u.t.Helper()
	u.await("a key is written to the coordination store", func() bool {
		return u.any(func(s *Server) bool {
			return s.LeadsCoordination() &&
				s.PutCoordination(u.t.Context(), []byte(key), []byte(value)) == nil
		})
	})
}

// recover has the core go on from a stopped member, as the only one.
func (u *upgraded) recover(i int) *offline.CoreRecovery {
	u.t.Helper()
	number := uint64(7)
	plan, err := offline.PlanCoreRecovery(u.disks[i], "dir", func() uint64 { number++; return number })
	if err != nil {
		u.t.Fatal(err)
	}
	if _, err := offline.ApplyCoreRecovery(u.disks[i], "dir", plan); err != nil {
		u.t.Fatal(err)
	}
	if done, err := offline.ApplyCoreRecovery(u.disks[i], "dir", plan); err != nil || !done {
		u.t.Fatalf("for the second time: %v, %v", done, err)
	}
	return plan
}

// recoverUnderCrashes takes the power at each write of a recovery: given once more, the plan comes
// to its end. The disk stays as it was.
func (u *upgraded) recoverUnderCrashes(i int) {
	u.t.Helper()
	plan, err := offline.PlanCoreRecovery(u.disks[i], "dir", func() uint64 { return 5 })
	if err != nil {
		u.t.Fatal(err)
	}
	for at := int64(1); ; at++ {
		var writes atomic.Int64
		var crashed *vfs.MemFS
		mem := u.disks[i].CrashClone(vfs.CrashCloneCfg{})
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && writes.Add(1) == at {
				crashed = mem.CrashClone(vfs.CrashCloneCfg{})
			}
			return nil
		}))
		if _, err := offline.ApplyCoreRecovery(fs, "dir", plan); err != nil {
			u.t.Fatal(err)
		}
		if crashed == nil {
			return
		}
		for n := range 2 {
			done, err := offline.ApplyCoreRecovery(crashed, "dir", plan)
			if err != nil || n == 1 && !done {
				u.t.Fatalf("after a crash at write %d, the %d. time: %v, %v", at, n+1, done, err)
			}
		}
	}
}

// TestRecoveryWithoutCoordination: a member of an older version, of which the core goes on, has no
// coordination store, and founds one with itself when it is upgraded.
func TestRecoveryWithoutCoordination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpgraded(t, 3)
		defer u.close()
		for i := range 3 {
			u.start(i, true)
		}
		u.await("the core is formed", func() bool { return u.any((*Server).LeadsCore) })
		time.Sleep(5 * time.Second) // virtual
		u.close()
		if plan := u.recover(1); plan.Coordination != nil {
			t.Errorf("it has a coordination store: %+v", plan)
		}
		u.start(1, false)
		u.put("k", "v")
		version, members := u.running[1].CoordinationMembers()
		if len(members) != 1 || members[0] <= 3 || version == 0 {
			t.Errorf("members %v of version %d", members, version)
		}
	})
}

// TestRecoveryOfAnUnopenedCoordination: the member that the core goes on from knows that the
// coordination store was founded, and has not opened it yet. It begins empty, and is not waited for
// in vain.
func TestRecoveryOfAnUnopenedCoordination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpgraded(t, 3)
		defer u.close()
		for i := range 3 {
			u.start(i, true)
		}
		u.await("the core is formed", func() bool { return u.any((*Server).LeadsCore) })
		u.close()
		u.start(0, false)
		u.start(1, false)
		u.put("k", "lost")
		u.start(2, true)
		u.await("the last one knows the founding", func() bool {
			s := u.running[2]
			p := s.member.part.Load()
			if p == nil {
				return false
			}
			founding, err := membership.CoordinationFounding(p.store)
			return err == nil && founding != nil
		})
		u.close()
		u.recoverUnderCrashes(2)
		if plan := u.recover(2); plan.Coordination != nil {
			t.Errorf("it has something of the coordination store: %+v", plan)
		}
		u.start(2, false)
		u.put("l", "v")
		if value, err := u.running[2].GetCoordination([]byte("k")); err != nil || value != nil {
			t.Errorf("a key that only the others had: %q, %v", value, err)
		}
	})
}

// recordedLog is what was logged.
type recordedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *recordedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines are those that say something.
func (l *recordedLog) lines(what string) (said []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, what) {
			said = append(said, line)
		}
	}
	return said
}

// TestAlarmsWhenAllMembersKnowThem: as long as a member of the core runs a version that may not
// know of alarms, none is raised, neither by a member without room, which says so in its log every
// ten minutes, nor by request; when all are upgraded the one without room raises its own. No member
// fails.
func TestAlarmsWhenAllMembersKnowThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpgraded(t, 3)
		defer u.close()
		var log recordedLog
		u.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		for i := range 3 {
			u.olderCommands = i == 2
			u.start(i, false)
		}
		u.put("k", "v")
		u.await("all have opened it", func() bool { return u.open() == 3 })
		s := u.running[0]
		room := func() *spacealarm.Alarm { return s.member.part.Load().coordination.spaceAlarm.Load() }
		u.await("it looks for room", func() bool { return room() != nil })
		time.Sleep(time.Minute) // virtual: until they have asked the third one, which was newer before
		s.member.coordination().SetQuota(store.Quota{Bytes: 1})
		time.Sleep(time.Minute) // virtual
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		alarm := store.RaiseAlarm(&storepb.Alarm{Member: 1, Type: storepb.Alarm_CORRUPT})
		if _, err := s.member.coordination().Execute(ctx, alarm); !errors.Is(err, store.ErrOldMembers) {
			t.Errorf("by request: %v", err)
		}
		if alarms := s.member.coordination().Alarms(); len(alarms) > 0 {
			t.Errorf("raised: %v", alarms)
		}
		for want := range 3 {
			if said := log.lines("no alarm for want of room can be raised"); len(said) != want+1 ||
				!strings.Contains(said[0], `unheard=[] older=[`+u.address(2)+"]") {
				t.Errorf("after %d more times: %q", want, said)
			}
			time.Sleep(spacealarm.RefusedAgain) // virtual
		}
		u.olderCommands = false
		u.start(2, false)
		u.await("the alarm is raised", func() bool { return len(s.member.coordination().Alarms()) == 1 })
		for i, m := range u.running {
			if err := errors.Join(m.Err(), m.CoordinationErr()); err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		}
	})
}
