package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestReadsDoNotPushClocks: a client does not know how the way of an answer divides into there and
// back, so what it believes the time to be is wrong by that. It does not read at a time that has
// not come yet: the servers' clocks would be pushed to that, and its next belief would be built on
// theirs.
func TestReadsDoNotPushClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		admin := c.Client(t)
		ks := create(t, admin, "things", kv.Hash(6))
		var all [][]byte
		for i := range 12 {
			all = append(all, fmt.Appendf(nil, "k%d", i))
			put(t, ks, string(all[i]), "value")
		}
		const far = 40 * time.Millisecond
		slow := func(d time.Duration) {
			for server := range c.Servers() {
				c.Network().SetLatency("client-2", c.Host(server), d)
			}
		}
		reader := c.Client(t)
		for round := range 3 {
			// Some time at which all that it hears comes from far; by then what it believed before
			// is too old.
			slow(far)
			for range 12 {
				mustHold(t, reader.Keyspace("things"), "k0", "value")
				time.Sleep(time.Second)
			}
			slow(latency)
			if err := reader.View(t.Context(), func(s *kv.Snapshot) error {
				pairs, err := s.BatchGet(t.Context(), reader.Keyspace("things"), all)
				if err == nil && len(pairs) != len(all) {
					err = fmt.Errorf("%d of %d keys", len(pairs), len(all))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for _, key := range all {
				version, err := ks.Put(t.Context(), key, []byte("value"))
				if err != nil {
					t.Fatal(err)
				}
				// All clocks show the true time.
				if ahead := time.Duration(version.Wall - time.Now().UnixNano()); ahead > 0 {
					t.Fatalf("round %d: %s was written %v ahead of the time", round, key, ahead)
				}
			}
		}
	})
}
