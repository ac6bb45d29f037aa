package server

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// manyLooks is time for the leader to drop what it is going to drop.
const manyLooks = consumer.DropAfter + 5*consumer.LookInterval

// TestLeadersClockDropsNoConsumer: the clock of the core's leader jumps, forward or back, and stays
// wrong; consumers are what they were, and move on. Then the clock of a node, of two, does the
// same: only a majority of the nodes shows what time it is.
func TestLeadersClockDropsNoConsumer(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		for n := 2; n <= 3; n++ {
			_, stop := c.register(c.client, n, "")
			defer stop()
		}
		short := at("short", ago(30*time.Minute))
		short.KeepMillis = 3600 * 1000
		c.set(short)
		c.set(at("long", ago(40*time.Minute)))
		long := wire.FromClusterTimestamp(c.get("long").Position)
		c.awaitProtected(long)
		stays := func(why string) {
			t.Helper()
			time.Sleep(manyLooks) // virtual
			for _, name := range []string{"short", "long"} {
				if x := c.get(name); x.TooOld || x.LagMillis > 2*3600*1000 {
					t.Fatalf("%s, and consumer %s is %v", why, name, x)
				}
			}
			if p := c.protected(); p != long {
				t.Fatalf("%s, and %s is protected, want %s", why, p, long)
			}
			next := at("short", ago(30*time.Minute))
			next.KeepMillis = short.KeepMillis
			c.set(next)
		}
		for _, by := range []time.Duration{200 * 24 * time.Hour, -200 * 24 * time.Hour} {
			c.jump(c.jumped, 1, by)
			stays("the leader's clock has jumped by " + by.String())
		}
		c.jump(c.jumped, 1, 200*24*time.Hour)
		c.jump(c.jumpedNodes, 1, 200*24*time.Hour)
		stays("that of a node has jumped too")
		c.mu.Lock()
		c.distrusting[2], c.distrusting[1] = true, true
		c.mu.Unlock()
		c.jump(c.jumped, 1, 0)
		stays("two of three nodes do not trust their clocks")
	})
}

// TestClockBehindGivesUpNoProtection: the clock of a new leader is behind by hours, and for a while
// no majority of the nodes proves the time. What is protected stays, and is lowered for a consumer
// that begins; it follows the consumers again once the time is proven.
func TestClockBehindGivesUpNoProtection(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		for n := 2; n <= 3; n++ {
			_, stop := c.register(c.client, n, "")
			defer stop()
		}
		stays := func(want hlc.Timestamp, why string) {
			t.Helper()
			for range 300 {
				if p := c.protected(); p != want {
					t.Fatalf("%s, and %s is protected, want %s", why, p, want)
				}
				time.Sleep(100 * time.Millisecond) // virtual
			}
		}
		distrust := func(distrusted bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for n := 1; n <= 3; n++ {
				c.distrusting[n] = distrusted
			}
		}
		c.set(at("a", ago(2*time.Hour)))
		a := wire.FromClusterTimestamp(c.get("a").Position)
		c.awaitProtected(a)
		c.jump(c.jumped, 2, -20*time.Hour)
		c.elect(c.members[1])
		stays(a, "a leader's clock is behind")

		distrust(true)
		c.jump(c.jumped, 1, -20*time.Hour)
		c.elect(c.members[0])
		stays(a, "no node trusts its clock")
		next := ago(90 * time.Minute)
		b := ago(20*time.Hour + 15*time.Minute) // within the window by the leader's clock
		c.set(at("b", b))
		stays(b, "a consumer has begun")
		if _, err := c.client.DeleteConsumer(t.Context(),
			&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: "b"}); err != nil {
			t.Fatal(err)
		}
		stays(b, "it is deleted, and no node trusts its clock")

		distrust(false)
		c.awaitProtected(a)
		c.set(at("a", next))
		c.awaitProtected(next)
	})
}

// TestConsumersOutliveAnOutage: after an outage that was longer than the keep, by the clocks of
// all, consumers have time to go on; those that do not use it are dropped.
func TestConsumersOutliveAnOutage(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		c.set(at("a", ago(20*time.Hour)))
		c.set(at("gone", ago(20*time.Hour)))
		c.elect(nil)
		time.Sleep(5 * time.Hour) // virtual
		c.elect(c.members[1])
		time.Sleep(consumer.DropAfter - time.Minute) // virtual
		// It has come on a little, and is still beyond its keep.
		next := ago(24*time.Hour + 30*time.Minute)
		if x := c.set(at("a", next)); x.TooOld {
			t.Fatalf("after an outage it is %v", x)
		}
		if p := c.protected(); p.IsZero() || next.Less(p) {
			t.Fatalf("%s is protected", p)
		}
		c.set(at("a", ago(time.Minute)))
		c.await("the other one is dropped", func() bool { return c.get("gone").TooOld })
		if x := c.get("a"); x.TooOld {
			t.Fatalf("it is %v", x)
		}
	})
}

// TestConsumerOfANewLeader: a consumer that is beyond its keep is dropped also if the leader
// changes now and then; each leader looks for itself.
func TestConsumerOfANewLeader(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		c.set(at("a", ago(24*time.Hour-time.Minute)))
		time.Sleep(consumer.DropAfter) // virtual
		c.elect(c.members[1])
		time.Sleep(consumer.DropAfter - time.Minute) // virtual
		if x := c.get("a"); x.TooOld {
			t.Fatalf("the next leader has not seen it for long enough: %v", x)
		}
		c.await("it is dropped", func() bool { return c.get("a").TooOld })
		if _, err := c.client.SetConsumer(t.Context(), at("a", ago(0))); status.Code(err) !=
			codes.OutOfRange {
			t.Errorf("it goes on: %v", err)
		}
	})
}
