package server

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// found has the coordination store founded, and opens it on all members; the member at a place
// leads it.
func (c *core) found(leader int) *core {
	c.t.Helper()
	c.knows(c.addresses()...)
	c.await("the coordination store is founded", func() bool { return c.founding() != nil })
	c.second = &core{t: c.t, term: 1, silent: map[uint64]bool{}, lagging: map[uint64]bool{}}
	for _, first := range c.members {
		m := &member{core: c.second, id: first.id, state: first.state}
		d := client.NewDialer(client.DialerConfig{Dial: c.network.Dialer(fmt.Sprintf("core%d",
			first.id))})
		c.dialers = append(c.dialers, d)
		peers := &coordination.Peers{Cluster: testCluster, Conn: d.Conn,
			Resolve: func(id uint64) (string, bool) {
				x := memberOf(first.store.Members(), id)
				return x.GetAddress(), x != nil
			}}
		var err error
		if m.store, err = store.New(store.Config{State: m.state, Group: m, Random: rand.Reader,
			Partition: keys.CoordinationPartition, Founding: c.founding(), Peers: peers}); err != nil {
			c.t.Fatal(err)
		}
		c.second.members = append(c.second.members, m)
	}
	c.second.elect(c.second.members[leader])
	for i, m := range c.members {
		m.server.membership.OpenCoordination(membership.Coordination{Store: c.second.members[i].store,
			Group: c.second.members[i]})
	}
	return c.second
}

// apart is by how many versions the coordination store's members are behind the core's.
func (c *core) apart() int {
	return int(c.members[0].store.Members().Version) -
		int(c.second.members[0].store.Members().Version)
}

// isAt says that the core's members are at a version.
func (c *core) isAt(version uint64) func() bool {
	return func() bool { return c.members[0].store.Members().Version == version }
}

// TestCoordinationFollowsTheCore replaces members, also those that lead one of the stores or both,
// and at each proposal of the coordination store its leader loses the lead, before it or behind it:
// it comes to the core's members, is one step behind at most, and its changes are fenced.
func TestCoordinationFollowsTheCore(t *testing.T) {
	for led := range 3 {
		reached := true
		for at := 0; reached; at++ {
			for _, applied := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %d %v", led, at, applied), func(t *testing.T) {
					inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
						second := c.found(led)
						if at > 0 {
							second.mu.Lock()
							second.crashAt, second.applied = second.proposed+at, applied
							second.mu.Unlock()
						}
						c.offers("new:1", 104)
						c.knows("new:1")
						if err := c.change(client, "new:1", "core1:1"); err != nil {
							t.Fatal(err)
						}
						c.await("the change is done", func() bool {
							if n := c.apart(); n < 0 || n > 1 {
								t.Fatalf("%d versions apart", n)
							}
							list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
							return err == nil && list.Change == nil
						})
						now, own := c.members[1].store.Members(), second.members[1].store.Members()
						if !proto.Equal(now, own) || own.Version != 3 {
							t.Fatalf("the core has %v, the coordination store %v", now, own)
						}
						second.mu.Lock()
						defer second.mu.Unlock()
						reached = at > 0 && second.proposed >= second.crashAt || at == 0
						for i, change := range second.changed {
							if change && (i == 0 || second.changed[i-1]) {
								t.Errorf("entry %d changes the members right behind another change", i+1)
							}
						}
					})
				})
			}
		}
	}
}

// TestCoreWaitsForCoordination: while the coordination store has no leader, the core takes no
// second step, and says what it waits for; a member that it has removed is not told so before the
// coordination store has let it go. A changed address waits for nothing.
func TestCoreWaitsForCoordination(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		second := c.found(0)
		second.elect(nil)
		if err := c.change(client, "", "core3:1"); err != nil {
			t.Fatal(err)
		}
		waits := func(what string) func() bool {
			return func() bool {
				list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
				return err == nil && strings.Contains(list.Change.GetWaitsFor(), what)
			}
		}
		c.await("it waits", waits("no leader of it is known"))
		time.Sleep(time.Minute) // virtual
		if n := c.apart(); n != 1 {
			t.Fatalf("%d versions apart", n)
		}
		c.mu.Lock()
		delete(c.hellos, "core2:1")
		c.mu.Unlock()
		announce := func(server uint64, address string) *clusterpb.AnnounceResponse {
			t.Helper()
			r, err := client.Announce(t.Context(), &clusterpb.AnnounceRequest{Cluster: testCluster,
				Server: server, Address: address})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := announce(2, "moved:1"); r.Replica != 2 || r.Members.Members[1].Address != "moved:1" {
			t.Fatal(r)
		}
		second.elect(second.members[1])
		c.await("the change is done", func() bool {
			list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
			return err == nil && list.Change == nil
		})
		if r := announce(3, "core3:1"); !r.Removed || r.Leaving {
			t.Fatal(r)
		}
	})
}

// TestMemberIsNotToldThatItIsRemoved before the coordination store has let it go; if it leads that
// meanwhile, it hands over.
func TestMemberIsNotToldThatItIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		second := c.found(0)
		// A fence and the first change; another fence, and the last change, which is not made.
		proposals := 0
		second.mu.Lock()
		second.holds = func([]byte) bool { proposals++; return proposals > 3 }
		second.mu.Unlock()
		if err := c.change(client, "", "core3:1"); err != nil {
			t.Fatal(err)
		}
		c.await("the member goes out", second.holding)
		second.elect(nil)
		c.await("the core has removed it", c.isAt(2))
		ask := func() *clusterpb.AnnounceResponse {
			t.Helper()
			r, err := client.Announce(t.Context(), &clusterpb.AnnounceRequest{Cluster: testCluster,
				Server: 3, Address: "core3:1"})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := ask(); r.Removed || !r.Leaving || r.Replica != 0 {
			t.Fatal(r)
		}
		if list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{}); err != nil ||
			len(list.Candidates) > 0 {
			t.Fatal(list, err)
		}
		second.mu.Lock()
		second.holds = nil
		second.mu.Unlock()
		c.members[2].server.membership.LeaveCoordination()
		second.elect(second.members[2])
		c.await("another one leads, and lets it go", func() bool {
			return second.members[0].store.Members().Version == 2
		})
		if r := ask(); !r.Removed || r.Leaving {
			t.Fatal(r)
		}
	})
}

// TestOlderNewcomerIsRefused: a server that cannot keep the coordination store becomes no member
// when there is one.
func TestOlderNewcomerIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.found(1)
		c.offers("old:1", 104)
		if err := c.change(client, "old:1", ""); err == nil ||
			!strings.Contains(err.Error(), "in this version or a later one") {
			t.Fatal(err)
		}
	})
}

// TestGoneNewcomerIsTakenBack: the server of a newcomer ends when the core lets it vote, and the
// coordination store does not yet. It goes on without it, and the newcomer can be taken back.
func TestGoneNewcomerIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		second := c.found(1)
		second.mu.Lock()
		second.lagging[4] = true
		second.mu.Unlock()
		c.offers("new:1", 104)
		c.knows("new:1")
		if err := c.change(client, "new:1", ""); err != nil {
			t.Fatal(err)
		}
		c.await("the core lets it vote", c.isAt(2))
		time.Sleep(time.Minute) // virtual
		if n := c.apart(); n != 1 {
			t.Fatalf("%d versions apart", n)
		}
		c.mu.Lock()
		c.gone[4] = true
		delete(c.hellos, "new:1")
		c.mu.Unlock()
		if err := c.change(client, "", "4"); err != nil {
			t.Fatal(err)
		}
		c.await("the newcomer is out", func() bool {
			list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
			return err == nil && list.Change == nil && len(list.Members.Members) == 3 && c.apart() == 0
		})
	})
}
