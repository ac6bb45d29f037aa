package server

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestOldNewcomerWhileAMemberIsUnheard: the log has commands of the newest format, and then a
// leader does not know what a member that is down knows. A newcomer that may stop at what is in the
// log is refused, and one of this version is not.
func TestOldNewcomerWhileAMemberIsUnheard(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.upgraded(client)
		c.neverAnswered(3, "core3:1")
		c.await("the leader does not know any more", func() bool { return !c.raises() })
		c.offers("new:1", 104)
		for _, format := range []uint32{0, store.LeastFormat, store.NewestFormat - 1} {
			c.knowsUpTo("new:1", format)
			c.refused(c.change(client, "new:1", ""), "not heard the version of core3:1")
		}
		c.knowsUpTo("new:1", store.NewestFormat)
		c.mustChange(client, "new:1", "core3:1")
		c.mustBe("1:voter@1 2:voter@2 4:voter@4")
	})
}

// TestOldNewcomerThatIsRecorded: a change that adds a server of an older version was recorded when
// nothing newer was in use, and all members were upgraded before it is carried out. The server is
// added when it is upgraded too; while it is another one, or does not answer, it is not.
func TestOldNewcomerThatIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.upgraded(client)
		c.offers("new:1", 104)
		c.says("new:1", older)
		c.record("new:1", 104)
		waits := func(want string) {
			t.Helper()
			c.await(want, func() bool { return strings.Contains(c.waitsFor(client), want) })
			time.Sleep(time.Minute) // virtual
			c.mustBe("1:voter@1 2:voter@2 3:voter@3")
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
			inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
				c.serves(client)
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
				time.Sleep(5 * time.Second) // virtual
				if !format(known)() {
					t.Error("what the newcomer does not know is used")
				}
				if back {
					c.write(store.Delete([]byte(meta.CoreGoalKey)))
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
				time.Sleep(5 * time.Second) // virtual
				if !format(known)() {
					t.Error("the newcomer does not count as the others do")
				}
			})
		})
	}
}
