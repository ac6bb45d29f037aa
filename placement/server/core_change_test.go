package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestChangeCoreUnderCrashes replaces the member that leads, and at each proposal on the way the
// leader loses its leadership, before or behind it: the change is completed by the leaders that
// follow, and each id is given out once.
func TestChangeCoreUnderCrashes(t *testing.T) {
	reached := true
	for at := 1; reached; at++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %v", at, applied), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
					c.offers("new:1", 104)
					c.serves(client)
					c.mu.Lock()
					c.crashAt, c.applied = c.proposed+at, applied
					c.mu.Unlock()
					if err := c.change(client, "new:1", "core1:1"); err != nil {
						t.Fatal(err)
					}
					c.mustChange(client, "new:1", "core1:1")
					want := "2:voter@2 3:voter@3 4:voter@4"
					if got := c.configuration(); got != want {
						t.Fatalf("got %s, want %s", got, want)
					}
					c.mu.Lock()
					reached = c.proposed >= c.crashAt
					c.mu.Unlock()
					// What is done is done: the same again changes nothing.
					version := c.members[1].store.Members().Version
					c.mustChange(client, "new:1", "core1:1")
					c.mustChange(client, "new:1", "")
					c.mustChange(client, "", "core1:1")
					if now := c.members[1].store.Members().Version; now != version {
						t.Fatalf("version %d became %d", version, now)
					}
				})
			})
		}
	}
}

// TestChangeCoreRefused asks for what cannot be: each is refused with the reason, and changes
// nothing.
func TestChangeCoreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.offers("new:1", 104)
		c.offers("busy:1", 105)
		c.hellos["busy:1"].Offers = false
		c.offers("removed:1", 106)
		c.hellos["removed:1"].Removed = true
		c.offers("old:1", 107)
		c.hellos["old:1"].Changes = false
		c.offers("alias:1", 108)
		c.hellos["alias:1"].Address = "other:1"
		c.offers("foreign:1", 109)
		c.hellos["foreign:1"].Accepted = &clusterpb.Founding{Cluster: 9}
		c.mu.Lock()
		c.silent[2] = true
		c.mu.Unlock()
		for _, x := range []struct{ add, remove, want string }{
			{"", "", "say which server"},
			{"nobody:1", "", "start the server first"},
			{"busy:1", "", "does not offer itself"},
			{"old:1", "", "does not offer itself"},
			{"removed:1", "", "empty directory"},
			{"alias:1", "", "--advertise alias:1"},
			{"foreign:1", "", "cluster 0000000000000009"},
			{"", "unknown:1", "core1:1 (1), core2:1 (2), core3:1 (3)"},
			{"", "core3:1", "no quorum"},
			{"", "1", "no quorum"},
		} {
			err := c.change(client, x.add, x.remove)
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("add %q, remove %q: %v; want %q", x.add, x.remove, err, x.want)
			}
		}
		// One that runs an older version would stop.
		c.mu.Lock()
		c.hellos["core3:1"].Changes = false
		c.mu.Unlock()
		if err := c.change(client, "new:1", ""); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "core3:1 runs an older version") {
			t.Error(err)
		}
		c.mustBe("1:voter@1 2:voter@2 3:voter@3")
	})
}

// TestNewcomerIsTakenBack begins to add a server that then does not get the state: the core is not
// disturbed, a second change is refused, and removing the newcomer takes it back for good.
func TestNewcomerIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.offers("new:1", 104)
		c.offers("other:1", 105)
		c.mu.Lock()
		c.lagging[4] = true
		c.mu.Unlock()
		if err := c.change(client, "new:1", "core3:1"); err != nil {
			t.Fatal(err)
		}
		c.await("it waits", func() bool {
			list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
			return err == nil && strings.Contains(list.Change.GetWaitsFor(), "snapshot")
		})
		if err := c.change(client, "other:1", ""); err == nil ||
			!strings.Contains(err.Error(), "new:1 comes in place of member 3 at core3:1") {
			t.Fatal(err)
		}
		c.mustChange(client, "", "new:1")
		c.mustBe("1:voter@1 2:voter@2 3:voter@3")
		if err := c.change(client, "new:1", ""); err == nil ||
			!strings.Contains(err.Error(), "empty directory") {
			t.Fatal(err)
		}
		c.mustChange(client, "other:1", "")
		c.mustBe("1:voter@1 2:voter@2 3:voter@3 5:voter@5")
	})
}

// TestAnnounce has servers tell of themselves: one offers itself, one has moved, one was removed.
func TestAnnounce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		announce := func(server uint64, address string) (*clusterpb.AnnounceResponse, error) {
			return client.Announce(t.Context(), &clusterpb.AnnounceRequest{Cluster: testCluster,
				Server: server, Address: address})
		}
		candidates := func() int {
			list, err := client.ListCore(t.Context(), &clusterpb.ListCoreRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Candidates)
		}
		if r, err := announce(104, "new:1"); err != nil || r.Replica != 0 || r.Removed {
			t.Fatal(r, err)
		}
		if candidates() != 1 {
			t.Fatal("it is not listed")
		}
		time.Sleep(20 * time.Second) // virtual
		if candidates() != 0 {
			t.Fatal("it is still listed")
		}
		// A copy of a directory cannot take the place of one that answers.
		if _, err := announce(3, "moved:1"); err == nil || !strings.Contains(err.Error(), "copy") {
			t.Fatal(err)
		}
		c.mu.Lock()
		delete(c.hellos, "core3:1")
		c.mu.Unlock()
		r, err := announce(3, "moved:1")
		if err != nil || r.Replica != 3 || r.Members.Members[2].Address != "moved:1" {
			t.Fatal(r, err)
		}
		if got := client.Core(); got[2] != "moved:1" || len(got) != 3 {
			t.Fatal(got)
		}
		c.mustChange(client, "", "moved:1")
		if r, err := announce(3, "moved:1"); err != nil || !r.Removed {
			t.Fatal(r, err)
		}
	})
}

// TestClientFollowsTheMembers replaces all members that a client was told of, one after the other:
// the client finds the leader among those that the core has told of.
func TestClientFollowsTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 3, nil)
		defer c.close()
		c.elect(c.members[0])
		var client *coreclient.Client
		var learned []string
		client = c.clientWith("client", coreclient.Config{Core: []string{"core1:1"},
			Learned: func() { learned = client.Core() }})
		c.mustChange(client, "", "core1:1")
		if err := ask(client, time.Second); err != nil {
			t.Fatal(err)
		}
		c.members[0].grpc.Stop()
		for range 3 {
			if err := ask(client, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			c.elect(c.members[2])
		}
		if got := fmt.Sprint(learned); got != "[core2:1 core3:1]" &&
			got != "[core1:1 core2:1 core3:1]" {
			t.Fatal(got)
		}
	})
}

// TestChangesAreFenced: between any two changes of the members lies an entry that was proposed when
// the first was applied. A majority has that on disk, and with it that the change is committed:
// members that were removed while they were down, and one that stayed and knows of nothing, must
// not elect one of theirs by what was before.
func TestChangesAreFenced(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.offers("new:1", 104)
		c.mustChange(client, "new:1", "core1:1")
		c.mustChange(client, "", "core3:1")
		c.mu.Lock()
		defer c.mu.Unlock()
		changes := 0
		for i, change := range c.changed {
			if !change {
				continue
			}
			changes++
			if i == 0 || c.changed[i-1] {
				t.Errorf("entry %d changes the members right behind another change", i+1)
			}
		}
		if changes != 5 {
			t.Errorf("%d changes, want 5", changes)
		}
	})
}
