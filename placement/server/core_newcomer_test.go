package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// knowsUpTo has the member at an address know commands up to a format.
func (c *core) knowsUpTo(address string, format uint32) {
	c.says(address, func(h *clusterpb.BootstrapHello) { h.Commands = format })
}

// record records a change that adds a server, as a leader does that asks for no version.
func (c *core) record(address string, server uint64) {
	c.t.Helper()
	goal := encode(&serverpb.CoreGoal{Id: 1, AddServer: server, AddAddress: address})
	if _, err := c.members[0].store.Do(c.t.Context(),
		store.If(nil, []*storepb.Op{store.Put([]byte(coreGoalKey), goal)}, nil)); err != nil {
		c.t.Fatal(err)
	}
	c.members[0].server.core.poke()
}

// waitsFor is what the change that is under way waits for.
func (c *core) waitsFor(client *Client) string {
	list, err := client.ListCore(c.t.Context(), &clusterpb.ListCoreRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Change.GetWaitsFor()
}

// TestOldNewcomerWhileAMemberIsUnheard: the log has commands of the newest format, and then a
// leader does not know what a member that is down knows. A newcomer that may stop at what is in the
// log is refused, and one of this version is not.
func TestOldNewcomerWhileAMemberIsUnheard(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *Client) {
		if err := ask(client, time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, address := range c.addresses() {
			c.says(address, newest)
		}
		c.await("all members know of alarms", c.raises)
		c.neverAnswered(3, "core3:1")
		c.await("the leader does not know any more", func() bool { return !c.raises() })
		c.offers("new:1", 104)
		for _, format := range []uint32{0, store.LeastFormat, store.NewestFormat - 1} {
			c.knowsUpTo("new:1", format)
			err := c.change(client, "new:1", "")
			if status.Code(err) != codes.FailedPrecondition ||
				!strings.Contains(err.Error(), "not heard the version of core3:1") {
				t.Errorf("format %d: %v", format, err)
			}
		}
		c.knowsUpTo("new:1", store.NewestFormat)
		c.mustChange(client, "new:1", "core3:1")
		if got := c.configuration(); got != "1:voter@1 2:voter@2 4:voter@4" {
			t.Error(got)
		}
	})
}

// TestOldNewcomerThatIsRecorded: a change that adds a server of an older version was recorded when
// nothing newer was in use, and all members were upgraded before it is carried out. The server is
// added when it is upgraded too; while it is another one, or does not answer, it is not.
func TestOldNewcomerThatIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *Client) {
		if err := ask(client, time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, address := range c.addresses() {
			c.says(address, newest)
		}
		c.await("all members know of alarms", c.raises)
		c.offers("new:1", 104)
		c.says("new:1", older)
		c.record("new:1", 104)
		waits := func(want string) {
			t.Helper()
			c.await(want, func() bool { return strings.Contains(c.waitsFor(client), want) })
			time.Sleep(time.Minute) // virtual
			if got := c.configuration(); got != "1:voter@1 2:voter@2 3:voter@3" {
				t.Fatal(got)
			}
		}
		waits("new:1 runs an older version than the members")
		c.says("new:1", func(h *clusterpb.BootstrapHello) { newest(h); h.Server = 105 })
		waits("another server than the one that is to be added answers at new:1")
		c.answers(4, "new:1", nil)
		waits("new:1 does not say which version it runs")
		c.answers(4, "new:1", &clusterpb.BootstrapHello{Server: 104, Address: "new:1", Changes: true,
			Commands: store.NewestFormat})
		c.await("it is added", func() bool {
			return c.configuration() == "1:voter@1 2:voter@2 3:voter@3 4:voter@4"
		})
	})
}

// TestNothingNewerWhileANewcomerComes: a newcomer knows all that is in use when it is asked, and
// the last member that knew no more is upgraded while it is being added. What it does not know is
// not used, and is when the change was taken back.
func TestNothingNewerWhileANewcomerComes(t *testing.T) {
	const known = uint32(store.NewestFormat - 1)
	for name, back := range map[string]bool{"added": false, "taken back": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *core, client *Client) {
				if err := ask(client, time.Minute); err != nil {
					t.Fatal(err)
				}
				for _, address := range c.addresses() {
					c.knowsUpTo(address, known)
				}
				format := func(want uint32) func() bool {
					return func() bool { got, _ := c.weighed(); return got == want }
				}
				c.await("what all know is known", format(known))
				c.offers("new:1", 104)
				c.knowsUpTo("new:1", 0)
				c.record("new:1", 104)
				c.await("it waits", func() bool { return c.waitsFor(client) != "" })
				c.hold("new:1")
				c.knowsUpTo("new:1", known)
				c.await("it is being added", c.holding)
				for _, address := range c.addresses() {
					c.knowsUpTo(address, store.NewestFormat)
				}
				time.Sleep(5 * versionsAgain) // virtual
				if !format(known)() {
					t.Error("what the newcomer does not know is used")
				}
				if back {
					if _, err := c.members[0].store.Do(t.Context(), store.If(nil, []*storepb.Op{
						store.Delete([]byte(coreGoalKey))}, nil)); err != nil {
						t.Fatal(err)
					}
					c.await("all members count again", format(store.NewestFormat))
					c.mu.Lock()
					c.held = nil
					c.mu.Unlock()
				}
				c.release()
				if back {
					return
				}
				c.await("it is added", func() bool { return strings.Contains(c.configuration(), "4:") })
				time.Sleep(5 * versionsAgain) // virtual
				if !format(known)() {
					t.Error("the newcomer does not count as the others do")
				}
			})
		})
	}
}
