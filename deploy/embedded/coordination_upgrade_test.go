package embedded

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// upgraded is a core of some members, each of which runs in an older version, which knows of no
// coordination store, or in this one.
type upgraded struct {
	t       *testing.T
	network *memnet.Network
	disks   []vfs.FS
	running []*Server
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
		if s != nil && s.coordinationStore() != nil {
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
				u := &upgraded{t: t, network: memnet.New(), running: make([]*Server, members)}
				u.network.SetDefaultLatency(200 * time.Microsecond)
				for range members {
					u.disks = append(u.disks, vfs.NewMem())
				}
				defer func() {
					for i := range u.running {
						u.stop(i)
					}
				}()
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
				leader := (*Server)(nil)
				u.await("it has a leader", func() bool {
					return u.any(func(s *Server) bool { leader = s; return s.LeadsCoordination() })
				})
				if err := leader.PutCoordination(t.Context(), []byte("k"), []byte("v")); err != nil {
					t.Fatal(err)
				}
				if members == 1 {
					return
				}
				u.start(0, true)
				time.Sleep(10 * time.Second) // virtual
				if err := u.running[0].Err(); err != nil || u.running[0].coordinationStore() != nil {
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
