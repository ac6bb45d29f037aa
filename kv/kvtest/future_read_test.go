package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// aheadRequests counts the requests that had to wait for a clock.
const aheadRequests = "tidemark_node_future_timestamp_requests_total"

// TestFutureReadsKeepClocksWithinTheLimits: a client asks a server with a fast clock for a moment
// that is still ahead of that, or its session is from then. It does not carry the clock along: what
// is written there next is found by every reader that begins after it was acknowledged.
func TestFutureReadsKeepClocksWithinTheLimits(t *testing.T) {
	future := map[string]func(t *testing.T, client *kv.Client, at kv.Timestamp){
		"read": func(t *testing.T, client *kv.Client, at kv.Timestamp) {
			if p, err := client.SnapshotAt(at).Get(t.Context(), client.Keyspace("things"),
				[]byte("a")); err != nil || string(p.Value) != "before" {
				t.Errorf("%q, %v", p.Value, err)
			}
		},
		"many": func(t *testing.T, client *kv.Client, at kv.Timestamp) {
			if _, err := client.SnapshotAt(at).BatchGet(t.Context(), client.Keyspace("things"),
				[][]byte{[]byte("a"), []byte("b")}); err != nil {
				t.Error(err)
			}
		},
		"session": func(t *testing.T, client *kv.Client, at kv.Timestamp) {
			client.Observe(at)
			if _, err := client.Keyspace("things").Put(t.Context(), []byte("a"),
				[]byte("between")); err != nil {
				t.Error(err)
			}
		},
	}
	for name, ask := range future {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				registries := make([]*prometheus.Registry, 6)
				c := six(t, func(server int, sc *embedded.ServerConfig) {
					registries[server] = prometheus.NewRegistry()
					sc.Registry = registries[server]
				})
				// One replica each: followers would bring a leader's timestamps to the clocks of
				// their nodes.
				things := create(t, c.Client(t), "things", kv.Range([]byte("m")), kv.Replicas(1))
				put(t, things, "a", "before")
				put(t, things, "z", "before")
				fast, slow := serverOf(t, c, partitionOf(t, c, "a")),
					serverOf(t, c, partitionOf(t, c, "z"))
				if fast == slow {
					t.Fatalf("server %d has both partitions", fast)
				}
				const skew = 2 * bound / 5
				c.Clock(fast).SetOffset(skew)
				c.Clock(slow).SetOffset(-skew)
				time.Sleep(5 * time.Second)
				writer, reader, ahead := c.Client(t), c.Client(t), c.Client(t)
				ks := reader.Keyspace("things")
				mustHold(t, ks, "z", "before")
				time.Sleep(5 * time.Second)

				ask(t, ahead, kv.TimestampOf(time.Now().Add(skew+2*bound-time.Millisecond)))
				put(t, writer.Keyspace("things"), "a", "acknowledged")
				seesAcknowledged(t, reader, ks)
				if measured(t, registries, aheadRequests, "") == 0 {
					t.Error("no request has waited")
				}
			})
		})
	}
}

// TestNothingWaitsAmongEqualClocks: a new leader's first timestamps are ahead of its clock, and
// clients carry them to all the others. If the clocks show the same, no request waits because of
// that.
func TestNothingWaitsAmongEqualClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registries := make([]*prometheus.Registry, 3)
		c := kvtest.Start(t, kvtest.Options{Latency: latency, Configure: func(server int,
			sc *embedded.ServerConfig) {
			registries[server] = prometheus.NewRegistry()
			sc.Registry = registries[server]
		}})
		client, other := c.Client(t), c.Client(t)
		things := create(t, client, "things", kv.Range([]byte("m")))
		put(t, things, "a", "0")
		put(t, things, "z", "0")
		a, z := partitionOf(t, c, "a"), partitionOf(t, c, "z")
		for round := range 12 {
			transferLeadership(t, c, a, round%3)
			transferLeadership(t, c, z, (round+1+round/3)%3)
			before := time.Now()
			value := fmt.Sprint(round)
			put(t, things, "a", value)
			put(t, things, "z", value)
			if _, err := client.Update(t.Context(), func(tx *kv.Txn) error {
				for _, key := range []string{"a", "z"} {
					if p, err := tx.Get(t.Context(), things, []byte(key)); err != nil ||
						string(p.Value) != value {
						return fmt.Errorf("%s is %q, %w", key, p.Value, err)
					}
					if err := tx.Put(things, []byte(key), []byte(value+"'")); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*kv.Client{client, other} {
				ks := c.Keyspace("things")
				mustHold(t, ks, "z", value+"'")
				if err := c.View(t.Context(), func(s *kv.Snapshot) error {
					_, err := s.BatchGet(t.Context(), ks, [][]byte{[]byte("a"), []byte("z")})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				for _, err := range ks.Scan(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Logf("round %d took %v", round, time.Since(before))
		}
		if n := measured(t, registries, aheadRequests, ""); n != 0 {
			t.Errorf("%v requests have waited for clocks that show the same", n)
		}
	})
}
