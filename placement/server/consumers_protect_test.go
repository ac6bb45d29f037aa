package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// What is protected is the lowest position of all, and only while it is old; it follows the
// consumers, and ends with them.
func TestProtectionFollowsConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		begin := ago(20 * time.Minute)
		c.set(at("a", begin))
		c.set(at("b", ago(10*time.Minute)))
		time.Sleep(9 * time.Minute) // virtual
		if p := c.protected(); !p.IsZero() {
			t.Fatalf("%s is protected, which the window keeps", p)
		}
		c.awaitProtected(begin)
		// One that begins with an older position is protected at once.
		old := ago(3 * time.Hour)
		c.set(at("old", old))
		if p := c.protected(); p != old {
			t.Fatalf("%s is protected, want %s", p, old)
		}
		// One that begins later changes nothing.
		c.set(at("new", ago(time.Second)))
		if p := c.protected(); p != old {
			t.Fatalf("%s is protected, want %s", p, old)
		}
		// It follows, with pauses.
		writes := c.members[0].store.Revision()
		var last hlc.Timestamp
		for i := range 600 {
			last = ago(2*time.Hour - time.Duration(i)*time.Second)
			c.set(at("old", last))
			if p := c.protected(); last.Less(p) {
				t.Fatalf("%s is protected, and a consumer is at %s", p, last)
			}
			time.Sleep(100 * time.Millisecond) // virtual
		}
		if n := c.members[0].store.Revision() - writes; n > 700 {
			t.Errorf("%d writes for 600 moves of a consumer within a minute", n)
		}
		c.awaitProtected(last)
		back := at("b", ago(5*time.Hour))
		back.Reset_ = true
		c.set(back)
		if p := c.protected(); p != wire.FromClusterTimestamp(back.Position) {
			t.Errorf("%s is protected after a reset", p)
		}
		for _, name := range []string{"b", "old"} {
			if _, err := c.client.DeleteConsumer(t.Context(),
				&clusterpb.DeleteConsumerRequest{Keyspace: "k", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		c.awaitProtected(begin)
		c.set(at("a", ago(0)))
		c.awaitProtected(hlc.Timestamp{})
	})
}

// TestShorterWindowProtectsConsumers: a consumer that only the longer window has kept is protected
// when the nodes learn of a shorter one.
func TestShorterWindowProtectsConsumers(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		begin := ago(20 * time.Minute)
		c.set(at("a", begin))
		c.awaitProtected(hlc.Timestamp{}) // the window keeps it
		alter := func(window time.Duration) {
			t.Helper()
			// The answer is what the nodes learn with the window.
			r, err := c.client.AlterKeyspace(t.Context(), &clusterpb.AlterKeyspaceRequest{Name: "k",
				GcWindowSeconds: uint64(window.Seconds())})
			if err != nil {
				t.Fatal(err)
			}
			if p := wire.FromClusterTimestamp(r.Keyspace.Protected); p != begin {
				t.Errorf("with a window of %s %s is protected, want %s", window, p, begin)
			}
		}
		alter(10 * time.Minute)
		alter(2 * time.Hour)
		c.awaitProtected(hlc.Timestamp{})
	})
}

// What the leader is about to protect without having seen a consumer that begins is not protected.
func TestProtectionSeesConsumersThatBegin(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		low := ago(3 * time.Hour)
		c.set(at("low", low))
		c.set(at("x", ago(0)))
		reset := at("x", low.Add(time.Hour))
		reset.Reset_ = true
		c.hold("consumer/")
		failed := make(chan error, 1)
		go func() {
			// Past the client, which would ask again in the meantime.
			_, err := c.members[0].server.Consumers().Set(t.Context(), reset)
			failed <- err
		}()
		c.await("the reset is on its way", c.holding)
		begins := c.takeHeld()
		c.set(at("low", low.Add(2*time.Hour)))
		c.hold("table/keyspace/")
		c.await("the leader protects less", c.holding)
		for _, propose := range append(begins, c.takeHeld()...) {
			propose()
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // virtual
		if p := c.protected(); wire.FromClusterTimestamp(reset.Position).Less(p) {
			t.Errorf("%s is protected, and a consumer has begun at %s", p,
				wire.FromClusterTimestamp(reset.Position))
		}
		c.awaitProtected(wire.FromClusterTimestamp(reset.Position))
	})
}

// In a keyspace whose window is short consumers are protected from the beginning.
func TestProtectionInShortWindows(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		r := hash("short", 1, 1)
		r.GcWindowSeconds = 2
		create(t, c.core, c.client, r)
		set := at("a", ago(0))
		set.Keyspace = "short"
		c.set(set)
		p := keyspaceOf(t, c.client, "short").Keyspace.Protected
		if wire.FromClusterTimestamp(p) != wire.FromClusterTimestamp(set.Position) {
			t.Errorf("%v is protected", p)
		}
	})
}

// A consumer that is beyond its keep is protected no more, and does not begin anew without being
// told.
func TestConsumersBeyondTheirKeep(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		short := at("short", ago(40*time.Minute))
		short.KeepMillis = 3600 * 1000
		c.set(short)
		long := ago(35 * time.Minute)
		c.set(at("long", long))
		c.awaitProtected(wire.FromClusterTimestamp(short.Position))
		c.await("the lag is shown", func() bool { return c.shows(0)["consumer_lag_seconds k"] > 0 })
		if used := c.shows(0)["consumer_retention_used_ratio k"]; used < 0.66 || used > 0.7 {
			t.Errorf("%f of a keep is used", used)
		}
		time.Sleep(19*time.Minute + consumer.DropAfter) // virtual
		if x := c.get("short"); x.GetTooOld() {
			t.Fatalf("beyond its keep for less than %s it is %v", consumer.DropAfter, x)
		}
		c.await("it is too old", func() bool { return c.get("short").GetTooOld() })
		c.awaitProtected(long)
		c.await("it is counted", func() bool {
			shown := c.shows(0)
			return shown["consumers_dropped_total"] == 1 && shown["consumers too_old"] == 1 &&
				shown["consumers kept"] == 1
		})
		for _, r := range []*clusterpb.SetConsumerRequest{at("short", ago(0)),
			{Keyspace: "k", Name: "short"}} {
			if _, err := c.client.SetConsumer(t.Context(), r); status.Code(err) != codes.OutOfRange ||
				!strings.Contains(err.Error(), "reset") {
				t.Errorf("it goes on: %v", err)
			}
		}
		events, err := c.client.ListEvents(t.Context(), &clusterpb.ListEventsRequest{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range events.Events {
			found = found || e.Kind == "consumer" && e.Keyspace == "k" &&
				strings.Contains(e.Outcome, "short")
		}
		if !found {
			t.Errorf("no event tells of it: %v", events.Events)
		}
		reset := at("short", ago(time.Minute))
		reset.Reset_ = true
		if x := c.set(reset); x.TooOld || x.LagMillis != 60_000 {
			t.Errorf("after a reset it is %v", x)
		}
		// One that moves before the leader looks again is not too old.
		c.set(at("long", ago(0)))
		c.awaitProtected(hlc.Timestamp{})
	})
}

// A restart and another leader find the consumers, and go on protecting them.
func TestConsumersOutliveLeaders(t *testing.T) {
	withConsumers(t, func(t *testing.T, c consumed) {
		position := ago(25 * time.Minute)
		c.set(at("a", position))
		c.elect(c.members[1])
		if x := c.get("a"); wire.FromClusterTimestamp(x.GetPosition()) != position {
			t.Fatalf("the next leader knows %v", x)
		}
		time.Sleep(4 * time.Minute) // virtual
		c.awaitProtected(position)
		c.await("only the leader shows consumers", func() bool {
			return c.shows(0)["consumers kept"] == 0 && c.shows(1)["consumers kept"] == 1
		})
		if _, ok := c.shows(0)["consumer_lag_seconds k"]; ok {
			t.Error("a member that does not lead shows a lag")
		}
		c.restart()
		c.elect(c.members[2])
		if x := c.get("a"); wire.FromClusterTimestamp(x.GetPosition()) != position {
			t.Fatalf("after a restart: %v", x)
		}
		if p := c.protected(); p != position {
			t.Fatalf("after a restart %s is protected", p)
		}
		moved := ago(32 * time.Minute)
		reset := at("a", moved)
		reset.Reset_ = true
		c.set(reset)
		next := moved.Add(time.Second)
		c.set(at("a", next))
		c.awaitProtected(next)
	})
}

// The leader that falls at any step of setting a consumer leaves it as it was or as it should be.
func TestConsumerIsSetAcrossLeaders(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied: ", applied), func(t *testing.T) {
			withConsumers(t, func(t *testing.T, c consumed) {
				old := ago(2 * time.Hour)
				for i := range 3 {
					c.mu.Lock()
					c.crashAt, c.applied = c.proposed+i+1, applied
					c.mu.Unlock()
					name := fmt.Sprint("c", i)
					position := old.Add(time.Duration(-i) * time.Second)
					c.set(at(name, position))
					if x := c.get(name); wire.FromClusterTimestamp(x.GetPosition()) != position {
						t.Fatalf("%s is %v", name, x)
					}
					if p := c.protected(); p != position {
						t.Fatalf("%s is protected, want %s", p, position)
					}
				}
			})
		})
	}
}

// shows are the metrics of consumers that a member shows, by name and label.
func (c consumed) shows(member int) map[string]float64 {
	c.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.members[member].server.metrics.collectors...)
	families, err := registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "tidemark_core_")
		for _, m := range f.Metric {
			if !ok {
				continue
			}
			series := name
			for _, l := range m.Label {
				series += " " + l.GetValue()
			}
			shown[series] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return shown
}
