package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Programs of three consecutive releases, one of a version from before there were levels, and the
// one to which that is upgraded.
var (
	beforeLevels = release.Range{}
	afterThose   = release.Range{Min: release.Before, Max: release.V0_1}
	firstRelease = release.Supported()
	nextRelease  = release.Range{Min: release.Newest, Max: release.Newest + 1}
	thirdRelease = release.Range{Min: release.Newest + 1, Max: release.Newest + 2}
)

func versionOf(program release.Range) string { return fmt.Sprintf("v0.%d", uint32(program.Max)) }

// releases is a cluster whose servers run programs of several releases: the first three addresses
// are the core.
type releases struct {
	t       *testing.T
	network *memnet.Network
	disks   []*vfs.MemFS
	roles   [][]string
	running []*Server
}

// newReleases makes servers with roles, none of which runs.
func newReleases(t *testing.T, roles ...[]string) *releases {
	r := &releases{t: t, network: memnet.New(), roles: roles, running: make([]*Server, len(roles))}
	r.network.SetDefaultLatency(200 * time.Microsecond)
	for range roles {
		r.disks = append(r.disks, vfs.NewCrashableMem())
	}
	return r
}

// tryStart starts a server with a program again. fresh: with an empty directory.
func (r *releases) tryStart(i int, program release.Range, fresh bool) (*Server, error) {
	r.t.Helper()
	r.stop(i)
	if fresh {
		r.disks[i] = vfs.NewCrashableMem()
	}
	config := onlyServer(r.disks[i])
	config.Listen, config.NewListener = fmt.Sprintf("server%d:7400", i), r.network.Listen
	config.Dial, config.Roles = r.network.Dialer(fmt.Sprintf("server%d", i)), r.roles[i]
	config.Core, config.levels = nil, &program
	config.Version = versionOf(program)
	for j := range 3 {
		config.Core = append(config.Core, fmt.Sprintf("server%d:7400", j))
	}
	return StartServer(r.t.Context(), config)
}

func (r *releases) start(i int, program release.Range) {
	r.t.Helper()
	s, err := r.tryStart(i, program, false)
	if err != nil {
		r.t.Fatalf("server %d: %v", i, err)
	}
	r.running[i] = s
	r.await("the server is ready", func() bool {
		ready, _ := s.Ready()
		return ready && s.Err() == nil
	})
}

func (r *releases) stop(i int) {
	r.t.Helper()
	if s := r.running[i]; s != nil {
		if err := s.Stop(context.Background()); err != nil {
			r.t.Error(err)
		}
		r.running[i] = nil
	}
}

func (r *releases) close() {
	for i := range r.running {
		r.stop(i)
	}
}

func (r *releases) await(what string, holds func() bool) {
	r.t.Helper()
	for range 1200 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	r.t.Fatalf("waited in vain: %s", what)
}

// call has the cluster do something with its level, by way of a server.
func (r *releases) call(i int, q *clusterpb.UpgradeRequest) (*clusterpb.UpgradeResponse, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	return r.running[i].core.Upgrade(ctx, q)
}

func (r *releases) status() *clusterpb.UpgradeResponse {
	r.t.Helper()
	response, err := r.call(0, &clusterpb.UpgradeRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	return response
}

// allAt says that every server that runs has noted a level, and goes by it.
func (r *releases) allAt(l release.Level) bool {
	for _, s := range r.running {
		if s != nil && (s.level.Levels() != releasemark.Levels{Noted: l, Active: l} ||
			s.level.Active().Level() != l) {
			return false
		}
	}
	return true
}

// refused fails the test unless a start with a program is refused, at once or by the core, with a
// sentence that has the parts.
func (r *releases) refused(i int, program release.Range, fresh bool, parts ...string) {
	r.t.Helper()
	s, err := r.tryStart(i, program, fresh)
	if err == nil {
		select {
		case <-s.Done():
		case <-time.After(time.Minute): // virtual
		}
		err = s.Err()
		if closed := s.Close(context.Background()); closed != nil {
			r.t.Error(closed)
		}
	}
	if err == nil {
		r.t.Fatalf("server %d with %v is not refused", i, program)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			r.t.Errorf("server %d with %v: %q lacks %q", i, program, err, part)
		}
	}
}

// TestUpgrade: servers of two releases work together, of three they do not. Finalising is refused
// as long as one server runs the older one, and names it; until then each server can go back. After
// that none can, also if the core's leader stops in the middle of it.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both, coreOnly, nodeOnly := []string{RoleCore, RoleNode}, []string{RoleCore}, []string{RoleNode}
		r := newReleases(t, both, both, coreOnly, nodeOnly, nodeOnly)
		defer r.close()
		now, next := release.Newest, release.Newest+1
		for i := range 3 {
			s, err := r.tryStart(i, firstRelease, false)
			if err != nil {
				t.Fatal(err)
			}
			r.running[i] = s
		}
		r.start(3, firstRelease)
		r.await("a new cluster is at the newest level", func() bool { return r.allAt(now) })
		if u := r.status(); u.Target != uint32(now) || len(u.Servers) != 4 || len(u.Gates) != 0 {
			t.Errorf("a new cluster: %v", u)
		}

		// A program that is two releases ahead starts neither with a directory nor as a new server.
		r.refused(3, thirdRelease, false, "more than one release apart", "upgrade finalize")
		r.start(3, firstRelease)
		runs := func(p release.Range) string { return "server4:7400 runs tidemark " + versionOf(p) }
		r.refused(4, thirdRelease, true, runs(thirdRelease), "more than one release apart")

		// The next release comes to all but one; it can go, and come again.
		for _, i := range []int{0, 1, 2, 0} {
			r.start(i, nextRelease)
		}
		r.start(0, firstRelease)
		r.start(0, nextRelease)
		r.await("the servers are known", func() bool {
			_, err := r.call(0, &clusterpb.UpgradeRequest{Finalize: true})
			return status.Code(err) == codes.FailedPrecondition &&
				strings.Contains(err.Error(), "server3:7400") &&
				!strings.Contains(err.Error(), "server0:7400") &&
				!strings.Contains(err.Error(), "server2:7400")
		})
		if u := r.status(); u.Target != uint32(next) || u.Level.Coming != uint32(now) ||
			u.ReadySinceUnixMs != 0 {
			t.Errorf("while one server is behind: %v", u)
		}
		if !r.allAt(now) {
			t.Error("a level was noted")
		}

		// All have it. The leader stops when it has recorded that the level is coming.
		r.start(3, nextRelease)
		r.await("the cluster is ready", func() bool { return r.status().ReadySinceUnixMs != 0 })
		u, err := r.call(3, &clusterpb.UpgradeRequest{Finalize: true})
		if err != nil || u.Level.Coming != uint32(next) || u.Level.Active != uint32(now) {
			t.Fatalf("finalise: %v, %v", u, err)
		}
		for i := range 3 {
			if r.running[i].LeadsCore() {
				if err := r.running[i].Close(context.Background()); err != nil {
					t.Error(err)
				}
				r.running[i] = nil
				time.Sleep(20 * time.Second) // virtual
				r.start(i, nextRelease)
				break
			}
		}
		r.await("the next level is active everywhere", func() bool { return r.allAt(next) })
		if u, err := r.call(1, &clusterpb.UpgradeRequest{Finalize: true}); err != nil ||
			u.Level.Active != uint32(next) || u.Target != uint32(next) {
			t.Errorf("once more: %v, %v", u, err)
		}

		// There is no way back, for no kind of server, and for no new server.
		for _, i := range []int{2, 3} {
			r.refused(i, firstRelease, false, "was finalised", "there is no way back but a backup")
			r.start(i, nextRelease)
		}
		r.refused(4, firstRelease, true, runs(firstRelease), "was finalised")
		s, err := r.tryStart(4, thirdRelease, true)
		if err != nil {
			t.Fatal(err)
		}
		r.running[4] = s
		r.await("a program of the release after joins", func() bool {
			ready, _ := s.Ready()
			return ready && r.allAt(next)
		})
	})
}

// TestUpgradeByTimer: with the timer set, an upgrade is finalised by itself.
func TestUpgradeByTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReleases(t, []string{RoleCore, RoleNode}, []string{RoleCore}, []string{RoleCore})
		defer r.close()
		for i := range r.running {
			s, err := r.tryStart(i, firstRelease, false)
			if err != nil {
				t.Fatal(err)
			}
			r.running[i] = s
		}
		r.await("a new cluster is at the newest level", func() bool { return r.allAt(release.Newest) })
		hour := uint64(time.Hour.Milliseconds())
		if _, err := r.call(0, &clusterpb.UpgradeRequest{AutoAfterMillis: &hour}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.call(0, &clusterpb.UpgradeRequest{AutoAfterMillis: new(uint64(1))}); err == nil {
			t.Error("a timer of a millisecond")
		}
		for i := range r.running {
			r.start(i, nextRelease)
		}
		r.await("the cluster is ready", func() bool { return r.status().ReadySinceUnixMs != 0 })
		time.Sleep(55 * time.Minute) // virtual
		if !r.allAt(release.Newest) {
			t.Error("before the time is over")
		}
		time.Sleep(6 * time.Minute) // virtual
		r.await("the level is active", func() bool { return r.allAt(release.Newest + 1) })
	})
}

// TestUpgradeFromBeforeLevels: a cluster of versions from before there were levels is at level 0,
// where gates are closed, until its upgrade is finalised.
func TestUpgradeFromBeforeLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReleases(t, []string{RoleCore, RoleNode}, []string{RoleCore, RoleNode},
			[]string{RoleCore})
		defer r.close()
		for i := range r.running {
			s, err := r.tryStart(i, beforeLevels, false)
			if err != nil {
				t.Fatal(err)
			}
			r.running[i] = s
		}
		r.await("the core is formed", func() bool {
			for _, s := range r.running {
				if s.LeadsCoordination() {
					return true
				}
			}
			return false
		})
		time.Sleep(20 * time.Second) // virtual
		for i := range r.running {
			if i == 2 {
				r.await("the old server is seen", func() bool {
					_, err := r.call(0, &clusterpb.UpgradeRequest{Finalize: true})
					return err != nil && strings.Contains(err.Error(),
						"server2:7400: it supports no level above 0")
				})
			}
			r.start(i, afterThose)
		}
		raise := func() error {
			for _, s := range r.running {
				if s.LeadsCoordination() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					_, err := s.member.coordination().Execute(ctx, store.RaiseAlarm(
						&storepb.Alarm{Member: 1, Type: storepb.Alarm_CORRUPT}))
					return err
				}
			}
			return errors.New("no leader")
		}
		time.Sleep(time.Minute) // virtual: until the members know one another's versions
		r.await("the gate is closed", func() bool {
			err := raise()
			return errors.Is(err, store.ErrOldMembers) && strings.Contains(err.Error(), "upgrade finalize")
		})
		u := r.status()
		if u.Level.Active != 0 || u.Target != 1 || len(u.Gates) != 1 ||
			u.Gates[0].Name != release.CoreAlarms.Name {
			t.Errorf("before it is finalised: %v", u)
		}
		r.await("it is finalised", func() bool {
			_, err := r.call(1, &clusterpb.UpgradeRequest{Finalize: true})
			return err == nil
		})
		r.await("the level is active", func() bool { return r.allAt(1) })
		if err := raise(); err != nil {
			t.Errorf("when the gate is open: %v", err)
		}
		r.refused(0, beforeLevels, false, "was finalised")
	})
}
