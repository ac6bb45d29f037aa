package kvtest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// coordinationLeader waits for the server that leads the coordination store.
func coordinationLeader(t *testing.T, c *kvtest.Cluster) (server int) {
	t.Helper()
	waitFor(t, "the coordination store has a leader", func() bool {
		for i := range c.Servers() {
			if p := c.Process(i); p != nil && p.LeadsCoordination() {
				server = i
				return true
			}
		}
		return false
	})
	return server
}

// putCoordination writes a key, at whichever member there is, when there is a leader.
func putCoordination(t *testing.T, c *kvtest.Cluster, key, value string) {
	t.Helper()
	coordinationLeader(t, c)
	for i := range c.Servers() {
		p := c.Process(i)
		if p == nil || !p.CoreMember() {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := p.PutCoordination(ctx, []byte(key), []byte(value))
		cancel()
		if err != nil && p.CoreMember() { // otherwise it has heard meanwhile that it was removed
			t.Fatalf("put %s at server %d: %v", key, i, err)
		}
	}
}

// hasCoordination waits until a server has applied a key of the coordination store with a value.
func hasCoordination(t *testing.T, p *embedded.Server, key, want string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s is %q", key, want), func() bool {
		got, err := p.GetCoordination([]byte(key))
		return err == nil && string(got) == want
	})
}

// TestCoordinationIsFounded: a new cluster has a coordination store, with all members of its core,
// and goes on with it after a restart of all, and after a loss of power.
func TestCoordinationIsFounded(t *testing.T) {
	for _, cores := range []int{1, 3} {
		t.Run(fmt.Sprint(cores), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: cores, Separate: true,
					Latency: latency})
				putCoordination(t, c, "k", "v")
				all := func(want string) {
					t.Helper()
					for i := range cores {
						hasCoordination(t, c.Process(i), "k", want)
						version, members := c.Process(i).CoordinationMembers()
						if version != 0 || len(members) != cores {
							t.Fatalf("server %d: members %v of version %d", i, members, version)
						}
					}
				}
				all("v")
				for i := range cores {
					if err := c.Stop(i); err != nil {
						t.Fatal(err)
					}
				}
				for i := range cores {
					if err := c.Run(i); err != nil {
						t.Fatal(err)
					}
				}
				all("v")
				putCoordination(t, c, "k", "w")
				for i := range cores {
					c.KillAll(0, i)
				}
				for i := range cores {
					if err := c.Run(i); err != nil {
						t.Fatal(err)
					}
				}
				all("w")
				if p := c.Process(cores); p.LeadsCoordination() || p.LeadsCore() {
					t.Error("a data node leads")
				}
			})
		})
	}
}

// followed waits until the coordination store has these servers as its members, on all of them, and
// none beside; every one of them has a key of it.
func followed(t *testing.T, c *kvtest.Cluster, key, value string, servers ...int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the coordination store is on servers %v", servers), func() bool {
		n := 0
		for i := range c.Servers() {
			p := c.Process(i)
			if p == nil || !p.CoreMember() {
				continue
			}
			if _, members := p.CoordinationMembers(); len(members) != len(servers) {
				return false
			}
			n++
		}
		return n == len(servers)
	})
	for _, i := range servers {
		hasCoordination(t, c.Process(i), key, value)
	}
}

// handCoordination has a server lead the coordination store.
func handCoordination(t *testing.T, c *kvtest.Cluster, server int, member uint64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("server %d leads the coordination store", server), func() bool {
		for i := range c.Servers() {
			if p := c.Process(i); p != nil && i != server {
				p.TransferCoordination(member)
			}
		}
		return c.Process(server).LeadsCoordination()
	})
}

// TestCoordinationFollowsMembers adds, replaces and removes members of the core, also the one that
// leads the coordination store and not the core, and the one that leads both: it has the core's
// members each time, keeps its keys, and goes on with the newcomers alone.
func TestCoordinationFollowsMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 6)
		client := c.Client(t)
		at := c.Endpoints()
		putCoordination(t, c, "k", "v")
		followed(t, c, "k", "v", 0)
		for i := 1; i < 3; i++ {
			changeCore(t, client, at[i], "")
			awaitMembers(t, c, client, []int{0, 1, 2}[:i+1]...)
			followed(t, c, "k", "v", []int{0, 1, 2}[:i+1]...)
		}
		leader := 0
		for i := range 3 {
			if c.Process(i).LeadsCore() {
				leader = i
			}
		}
		// Server i has become member i+1.
		other := (leader + 1) % 3
		handCoordination(t, c, other, uint64(other+1))
		changeCore(t, client, at[3], at[other])
		left := []int{leader, (leader + 2) % 3, 3}
		awaitMembers(t, c, client, left...)
		followed(t, c, "k", "v", left...)
		handCoordination(t, c, leader, uint64(leader+1))
		changeCore(t, client, "", at[leader])
		awaitMembers(t, c, client, left[1:]...)
		followed(t, c, "k", "v", left[1:]...)
		putCoordination(t, c, "k", "w")
		changeCore(t, client, at[4], at[left[1]])
		awaitMembers(t, c, client, 3, 4)
		followed(t, c, "k", "w", 3, 4)
		changeCore(t, client, at[5], at[3])
		awaitMembers(t, c, client, 4, 5)
		followed(t, c, "k", "w", 4, 5)
		putCoordination(t, c, "k", "x")
		for i := range c.Servers() {
			if err := c.Restart(i); err != nil {
				t.Fatal(err)
			}
		}
		followed(t, c, "k", "x", 4, 5)
		waitFor(t, "the members that were removed have stopped", func() bool {
			for i := range 4 {
				if c.Process(i).CoreMember() {
					return false
				}
			}
			return true
		})
	})
}

// TestCoordinationChangesUnderLostLeaders replaces all members of a core of three, one after the
// other, while the server that leads the coordination store loses its power again and again: the
// changes are completed, and nothing that was acknowledged is lost.
func TestCoordinationChangesUnderLostLeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 6)
		client := c.Client(t)
		at := c.Endpoints()
		for i := 1; i < 3; i++ {
			changeCore(t, client, at[i], "")
			awaitMembers(t, c, client, []int{0, 1, 2}[:i+1]...)
		}
		stop := make(chan struct{})
		var disturbing sync.WaitGroup
		disturbing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1500+370*(n%7)) * time.Millisecond): // virtual
				}
				for i := range c.Servers() {
					p := c.Process(i)
					if p == nil || !p.LeadsCoordination() {
						continue
					}
					c.Kill(i, 50)
					time.Sleep(time.Second) // virtual
					if err := c.Run(i); err != nil {
						t.Error(err)
						return
					}
					break
				}
			}
		})
		var mu sync.Mutex
		var written []string
		for server := range c.Servers() { // one that hangs holds up no other
			disturbing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond): // virtual
					}
					p := c.Process(server)
					if p == nil {
						continue
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					key := fmt.Sprint("key-", server, "-", n)
					if p.PutCoordination(ctx, []byte(key), []byte("v")) == nil {
						mu.Lock()
						written = append(written, key)
						mu.Unlock()
					}
					cancel()
				}
			})
		}
		for i := range 3 {
			changeCore(t, client, at[i+3], at[i])
			awaitMembers(t, c, client, []int{0, 1, 2, 3, 4, 5}[i+1:i+4]...)
		}
		close(stop)
		disturbing.Wait()
		putCoordination(t, c, "last", "v")
		followed(t, c, "last", "v", 3, 4, 5)
		for _, key := range written {
			hasCoordination(t, c.Process(3), key, "v")
		}
		if len(written) < 20 {
			t.Errorf("only %d writes were acknowledged", len(written))
		}
	})
}
