package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Commands of a new format are proposed when each member has said that it knows them, and no more
// when one that answers runs an older version again. One that is silent counts as it was.
func TestCommandsThatAllMembersKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.serves(client)
		c.says("core1:1", newest)
		c.says("core2:1", newest)
		time.Sleep(time.Minute) // virtual
		if c.raises() {
			t.Error("one member has not said that it knows of alarms")
		}
		c.says("core3:1", newest)
		c.knowsAll()
		c.answers(3, "core3:1", nil)
		time.Sleep(time.Minute) // virtual
		if !c.raises() {
			t.Error("a silent member is forgotten")
		}
		c.answers(3, "core3:1", &clusterpb.BootstrapHello{Server: 3, Address: "core3:1", Founded: true,
			Changes: true})
		c.await("the older version is noticed", func() bool { return !c.raises() })
		// Another server at the address of a member says nothing of it.
		c.says("core3:1", func(h *clusterpb.BootstrapHello) { newest(h); h.Server = 103 })
		time.Sleep(time.Minute) // virtual
		if c.raises() {
			t.Error("another server at the address was believed")
		}
	})
}

// What another member has heard of one that is silent counts, as long as the members are the same.
func TestCommandsThatOthersHaveHeardOf(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.serves(client)
		c.neverAnswered(3, "core3:1")
		c.says("core1:1", newest)
		c.says("core2:1", func(h *clusterpb.BootstrapHello) {
			newest(h)
			h.MembersVersion, h.MembersCommands = 7, store.NewestFormat
		})
		time.Sleep(time.Minute) // virtual
		if c.raises() {
			t.Error("what holds of other members was believed")
		}
		c.says("core2:1", func(h *clusterpb.BootstrapHello) {
			h.MembersVersion = c.members[0].store.Members().GetVersion()
		})
		c.await("the silent member is known", c.raises)
		told := &clusterpb.BootstrapHello{}
		c.members[0].server.membership.Versions().Say(told)
		if told.MembersCommands != store.NewestFormat || told.Commands != store.NewestFormat ||
			!told.Learners {
			t.Errorf("tells %v", told)
		}
		c.answers(3, "core3:1", &clusterpb.BootstrapHello{Server: 3, Address: "core3:1"})
		c.await("the member itself is believed", func() bool { return !c.raises() })
	})
}

// A learner is added only if each member is known to know of learners, and the newcomer too; and no
// server is added that would stop at what the members write.
func TestLearnersOfKnownVersions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.offers("new:1", 104)
		c.serves(client)
		learner := func(want string) {
			t.Helper()
			_, err := client.ChangeCore(t.Context(), &clusterpb.ChangeCoreRequest{Learner: "new:1"})
			if want != "" {
				c.refused(err, want)
			} else if err != nil {
				t.Error(err)
			}
		}
		learner("the server at new:1 runs an older version")
		c.says("new:1", newest)
		for _, address := range []string{"core1:1", "core2:1", "core3:1"} {
			learner("the member of the core at " + address + " runs an older version")
			c.says(address, newest)
		}
		c.knowsAll()
		c.says("new:1", older)
		c.refused(c.change(client, "new:1", ""), "runs an older version than the members")
		c.says("new:1", newest)
		c.answers(3, "core3:1", nil)
		learner("")
		c.await("it is added", func() bool {
			return c.configuration() == "1:voter@1 2:voter@2 3:voter@3 4:learner@4"
		})
	})
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.neverAnswered(3, "core3:1")
		c.offers("new:1", 104)
		for _, address := range []string{"core1:1", "core2:1", "new:1"} {
			c.says(address, newest)
		}
		c.serves(client)
		if _, err := client.ChangeCore(t.Context(), &clusterpb.ChangeCoreRequest{
			Learner: "new:1"}); err == nil || !strings.Contains(err.Error(), "core3:1 does not answer") {
			t.Error(err)
		}
	})
}

// TestMembersChangeWhileTheyAreAsked: a member that came counts at once as one that was not heard,
// though others are being asked, and what is told to others is of one record of members.
func TestMembersChangeWhileTheyAreAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.upgraded(client)
		c.mu.Lock()
		c.helloTakes = time.Hour
		c.mu.Unlock()
		time.Sleep(20 * time.Second) // virtual
		leader := c.members[0].store
		next := proto.Clone(leader.Members()).(*storepb.Members)
		next.Version++
		next.Members = append(next.Members, &storepb.Member{Replica: next.NextReplica, Server: 104,
			Address: "new:1", Role: storepb.MemberRole_LEARNER})
		next.NextReplica++
		if _, err := leader.Do(t.Context(), store.ChangeMembers(next)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.raises() {
			t.Error("a member that was not heard counts as one that knows of alarms")
		}
		if format, members := c.weighed(); format != 0 || members != next.Version {
			t.Errorf("format %d, of the members at version %d, which are at %d", format, members,
				next.Version)
		}
	})
}
