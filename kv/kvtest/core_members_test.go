package kvtest_test

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

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// growing is a cluster with a core of one; every other server is a data node that offers itself as
// a member of the core.
func growing(t *testing.T, servers int) *kvtest.Cluster {
	t.Helper()
	return kvtest.Start(t, kvtest.Options{Nodes: servers, Cores: 1, Latency: latency,
		Configure: func(_ int, c *embedded.ServerConfig) {
			c.Roles = []string{embedded.RoleNode, embedded.RoleCore}
		}})
}

// members waits until nothing is under way in the core and its voters are these servers.
func awaitMembers(t *testing.T, c *kvtest.Cluster, client *kv.Client, servers ...int) admin.Core {
	t.Helper()
	var want []string
	for _, i := range servers {
		want = append(want, c.Endpoints()[i])
	}
	slices.Sort(want)
	last := ""
	for range 600 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		core, err := admin.New(client).Core(ctx)
		cancel()
		var voters []string
		for _, m := range core.Members {
			if m.Role == "voter" {
				voters = append(voters, m.Address)
			}
		}
		slices.Sort(voters)
		if err == nil && core.Change == nil && len(core.Members) == len(want) &&
			slices.Equal(voters, want) {
			return core
		}
		last = fmt.Sprintf("%+v, under way %+v, %v", core.Members, core.Change, err)
		time.Sleep(200 * time.Millisecond) // virtual
	}
	t.Fatalf("the core's members are not %v: %s", want, last)
	return admin.Core{}
}

// changeCore changes the members, as a command does that is repeated until it is taken.
func changeCore(t *testing.T, client *kv.Client, add, remove string) {
	t.Helper()
	var err error
	for range 100 {
		if err = admin.New(client).ChangeCore(t.Context(), add, remove); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond) // virtual
	}
	t.Fatalf("add %q, remove %q: %v", add, remove, err)
}

// coreLoad has keyspaces made and dropped, and keys written, until it is stopped; nothing of that
// may fail, and what was acknowledged is there at the end.
func coreLoad(t *testing.T, client *kv.Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	var made []string
	var written atomic.Int64
	ks := create(t, client, "load", kv.Hash(2), kv.Replicas(3))
	working.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("made-%d", i)
			if _, err := client.CreateKeyspace(t.Context(), name, kv.Hash(1),
				kv.Replicas(1)); err != nil {
				t.Errorf("creating %s: %v", name, err)
				return
			}
			if i%2 == 0 {
				made = append(made, name)
			} else if err := client.DropKeyspace(t.Context(), name); err != nil {
				t.Errorf("dropping %s: %v", name, err)
			}
			time.Sleep(100 * time.Millisecond) // virtual
		}
	})
	working.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "k%d", i), []byte("v")); err != nil {
				t.Errorf("put: %v", err)
				return
			}
			written.Add(1)
			time.Sleep(20 * time.Millisecond) // virtual
		}
	})
	return func() {
		t.Helper()
		cancel()
		working.Wait()
		infos, err := admin.New(client).Keyspaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, info := range infos {
			there[info.Name] = true
		}
		for _, name := range made {
			if !there[name] {
				t.Errorf("keyspace %s was made, and is not there", name)
			}
		}
		if len(made) == 0 || written.Load() == 0 {
			t.Errorf("%d keyspaces were made, and %d keys written", len(made), written.Load())
		}
	}
}

// TestCoreGrowsAndShrinks takes a core from one member to three, to five, and back to one that is
// none of the first three, under load. Its seed, the only server that all were started with, is
// removed and stopped on the way, and servers that are restarted find the core without it.
func TestCoreGrowsAndShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 6)
		client := c.Client(t)
		stop := coreLoad(t, client)
		at := c.Endpoints()
		for i := 1; i < 5; i++ {
			changeCore(t, client, at[i], "")
			awaitMembers(t, c, client, []int{0, 1, 2, 3, 4}[:i+1]...)
		}
		changeCore(t, client, "", at[0])
		awaitMembers(t, c, client, 1, 2, 3, 4)
		changeCore(t, client, "", at[1])
		awaitMembers(t, c, client, 2, 3, 4)
		stop()
		if err := c.Stop(0); err != nil {
			t.Fatal(err)
		}
		if err := c.Restart(5); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "a server whose only seed is gone finds the core", func() bool {
			ok, _ := c.Process(5).Ready()
			return ok
		})
		changeCore(t, client, "", at[2])
		awaitMembers(t, c, client, 3, 4)
		changeCore(t, client, "", at[3])
		awaitMembers(t, c, client, 4)
		create(t, client, "last", kv.Hash(1), kv.Replicas(3))
		waitFor(t, "the members that were removed have stopped", func() bool {
			for i := range 4 {
				if p := c.Process(i); p != nil && p.CoreMember() {
					return false
				}
			}
			return true
		})
	})
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(200 * time.Millisecond) // virtual
	}
	t.Fatalf("waited in vain: %s", what)
}

// TestLostCoreMemberIsReplaced loses the disk of a member, and has an empty directory at the same
// address take its place by one command: also of the member that leads.
func TestLostCoreMemberIsReplaced(t *testing.T) {
	for _, leader := range []bool{false, true} {
		t.Run(fmt.Sprint("the leader ", leader), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency})
				client := c.Client(t)
				stop := coreLoad(t, client)
				core := awaitMembers(t, c, client, 0, 1, 2)
				lost := slices.IndexFunc(core.Members, func(m admin.CoreMemberInfo) bool {
					return m.Leader == leader
				})
				at := core.Members[lost].Address
				i := slices.Index(c.Endpoints(), at)
				c.Kill(i, 50)
				if err := c.Wipe(i); err != nil {
					t.Fatal(err)
				}
				if err := c.Run(i); err != nil {
					t.Fatal(err)
				}
				changeCore(t, client, at, at)
				now := awaitMembers(t, c, client, 0, 1, 2)
				if last := now.Members[2]; last.Address != at || last.ID != 4 {
					t.Fatalf("%+v", now.Members)
				}
				stop()
				// It counts: the core goes on without one of the others.
				c.Kill((i+1)%3, 50)
				create(t, client, "after", kv.Hash(1), kv.Replicas(3))
			})
		})
	}
}

// TestCoreChangesUnderLostLeaders replaces all members of a core of three, one after the other,
// while the server that leads it loses its power again and again: every change is completed by the
// leaders that follow.
func TestCoreChangesUnderLostLeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 6)
		client := c.Client(t)
		at := c.Endpoints()
		for i := 1; i < 3; i++ {
			changeCore(t, client, at[i], "")
			awaitMembers(t, c, client, []int{0, 1, 2}[:i+1]...)
		}
		stop := make(chan struct{})
		var killing sync.WaitGroup
		killing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1500+370*(n%7)) * time.Millisecond): // virtual
				}
				for i := range c.Servers() {
					p := c.Process(i)
					if p == nil || p.CoreLeader() != at[i] {
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
		for i := range 3 {
			changeCore(t, client, at[i+3], at[i])
			want := []int{0, 1, 2, 3, 4, 5}[i+1 : i+4]
			core := awaitMembers(t, c, client, want...)
			if last := core.Members[2]; last.ID != uint64(i+4) {
				t.Errorf("ids are given out twice, or lost: %+v", core.Members)
			}
		}
		close(stop)
		killing.Wait()
		create(t, client, "after", kv.Hash(1), kv.Replicas(3))
	})
}

// TestRemovedCoreMemberDoesNotDisturb removes members that are down. When they come back, also all
// at once, they are members of nothing, say so, and go on as data nodes.
func TestRemovedCoreMemberDoesNotDisturb(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 5)
		client := c.Client(t)
		at := c.Endpoints()
		for i := 1; i < 3; i++ {
			changeCore(t, client, at[i], "")
			awaitMembers(t, c, client, []int{0, 1, 2}[:i+1]...)
		}
		for i := range 2 {
			if err := c.Stop(i); err != nil {
				t.Fatal(err)
			}
			changeCore(t, client, at[i+3], at[i])
			awaitMembers(t, c, client, []int{0, 1, 2, 3, 4}[i+1:i+4]...)
		}
		for i := range 2 {
			if err := c.Run(i); err != nil {
				t.Fatal(err)
			}
		}
		create(t, client, "after", kv.Hash(1), kv.Replicas(3))
		waitFor(t, "they know that they were removed", func() bool {
			return !c.Process(0).CoreMember() && !c.Process(1).CoreMember()
		})
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := admin.New(client).ChangeCore(t.Context(), at[0], "")
		if err == nil || !strings.Contains(err.Error(), "empty directory") {
			t.Fatalf("a removed directory comes back: %v", err)
		}
		awaitMembers(t, c, client, 2, 3, 4)
		// Nor at the next start.
		if err := c.Restart(0); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.Process(0).CoreMember() {
			t.Error("it is a member again")
		}
	})
}

// TestCoreAddRefusesASilentServer: a server that does not run, or does not offer itself, never
// becomes a member that a quorum needs.
func TestCoreAddRefusesASilentServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Latency: latency,
			Configure: func(i int, c *embedded.ServerConfig) {
				if i == 2 {
					c.Roles = []string{embedded.RoleNode, embedded.RoleCore}
				}
			}})
		client := c.Client(t)
		at := c.Endpoints()
		for address, want := range map[string]string{
			"nowhere:1": "start the server first", at[1]: "--roles core",
		} {
			err := admin.New(client).ChangeCore(t.Context(), address, "")
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", address, err)
			}
		}
		if err := admin.New(client).ChangeCore(t.Context(), "", at[0]); err == nil ||
			!strings.Contains(err.Error(), "only member") {
			t.Error(err)
		}
		core := awaitMembers(t, c, client, 0)
		if len(core.Candidates) != 1 || core.Candidates[0].Address != at[2] {
			t.Errorf("%+v", core.Candidates)
		}
		var none *kv.Error
		if errors.As(admin.New(client).ChangeCore(t.Context(), at[2], ""), &none) {
			t.Error(none)
		}
		awaitMembers(t, c, client, 0, 2)
	})
}

// TestOnlyCoreMemberIsReplaced has another server take the place of the only member.
func TestOnlyCoreMemberIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := growing(t, 3)
		client := c.Client(t)
		stop := coreLoad(t, client)
		changeCore(t, client, c.Endpoints()[1], c.Endpoints()[0])
		awaitMembers(t, c, client, 1)
		stop()
	})
}

// TestCoreMembersMove gives members other addresses, one while the others run, and then all at
// once: each is an update of its record, and nothing else is to be done.
func TestCoreMembersMove(t *testing.T) {
	bubble(t, func(t *testing.T) {
		port := 7400
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency,
			Configure: func(i int, c *embedded.ServerConfig) {
				if i < 3 && port != 7400 {
					c.Listen = fmt.Sprintf("server-%d:%d", i, port)
					c.Core = []string{"server-0:7500", "server-1:7500", "server-2:7500"}
				}
			}})
		client := c.Client(t)
		moved := func(want ...string) {
			t.Helper()
			waitFor(t, "the members are at "+strings.Join(want, ", "), func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				core, err := admin.New(client).Core(ctx)
				for i, m := range core.Members {
					if m.Address != want[i] || m.ID != uint64(i+1) || m.Role != "voter" || !m.Answers {
						return false
					}
				}
				return err == nil && len(core.Members) == 3
			})
		}
		port = 7500
		if err := c.Restart(1); err != nil {
			t.Fatal(err)
		}
		moved("server-0:7400", "server-1:7500", "server-2:7400")
		create(t, client, "one", kv.Hash(1), kv.Replicas(3))
		time.Sleep(5 * time.Second) // virtual; the data nodes hear of it with a heartbeat
		for i := range 3 {
			if err := c.Stop(i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			if err := c.Run(i); err != nil {
				t.Fatal(err)
			}
		}
		moved("server-0:7500", "server-1:7500", "server-2:7500")
		create(t, client, "all", kv.Hash(1), kv.Replicas(3))
		// The data nodes, which were started with the former addresses, know one that is right, and
		// find the others by it, at the next start too.
		for i := 3; i < 6; i++ {
			if err := c.Restart(i); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "the nodes are back", func() bool {
			ok, _ := c.Process(3).Ready()
			return ok
		})
		create(t, client, "again", kv.Hash(1), kv.Replicas(3))
	})
}

// TestOnlyCoreMemberMoves gives the only member of the core another address: the data nodes, which
// know none but the former, are told.
func TestOnlyCoreMemberMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		moved := false
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency,
			Configure: func(i int, c *embedded.ServerConfig) {
				if i == 0 && moved {
					c.Listen = "server-0:7500"
				}
			}})
		client := c.Client(t)
		moved = true
		if err := c.Restart(0); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the nodes find the core", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			core, err := admin.New(client).Core(ctx)
			if err != nil || core.Members[0].Address != "server-0:7500" {
				return false
			}
			nodes, err := admin.New(client).Nodes(ctx)
			alive := 0
			for _, n := range nodes {
				if n.Alive {
					alive++
				}
			}
			return err == nil && alive == 3
		})
		for i := 1; i < 4; i++ {
			if err := c.Restart(i); err != nil {
				t.Fatal(err)
			}
		}
		create(t, client, "after", kv.Hash(1), kv.Replicas(3))
	})
}
