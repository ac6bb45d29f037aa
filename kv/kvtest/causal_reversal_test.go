package kvtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// The one anomaly that read restart allows. One client commits x and tells another one, past the
// database; that one commits y, on a node with a slower clock, at a lower timestamp. A reader that
// began before both, on the node of x, then sees y and not x. With commit wait no reader does: the
// first commit is acknowledged only when the slow clock has passed it too.
func TestCausalReversal(t *testing.T) {
	for _, test := range []struct {
		name     string
		options  []kv.TxnOption
		reversed bool
	}{
		{"read restart", nil, true},
		{"commit wait", []kv.TxnOption{kv.CommitWait()}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				admin := c.Client(t)
				// One replica each: followers would bring a leader's timestamps to the clocks of
				// their nodes.
				things := create(t, admin, "things", kv.Range([]byte("m")), kv.Replicas(1))
				put(t, things, "a", "0")
				put(t, things, "z", "0")
				fast, slow := serverOf(t, c, partitionOf(t, c, "a")),
					serverOf(t, c, partitionOf(t, c, "z"))
				if fast == slow {
					t.Fatalf("server %d has both partitions", fast)
				}
				// As far apart as clocks may be.
				c.Clock(fast).SetOffset(2 * bound / 5)
				c.Clock(slow).SetOffset(-2 * bound / 5)
				time.Sleep(5 * time.Second)

				first, second, reader := c.Client(t), c.Client(t), c.Client(t)
				// The second knows of no other clock than the slow one.
				mustHold(t, second.Keyspace("things"), "z", "0")
				mustHold(t, reader.Keyspace("things"), "a", "0")
				var x, y kv.Timestamp
				saw := ""
				attempts := 0
				err := reader.View(t.Context(), func(s *kv.Snapshot) error {
					ks := reader.Keyspace("things")
					if _, err := s.Get(t.Context(), ks, []byte("a")); err != nil {
						return err
					}
					if attempts++; attempts == 1 {
						x = commit(t, first, "x", "c", test.options...)
						// And now it tells the other.
						y = commit(t, second, "y", "y", test.options...)
					}
					saw = ""
					for _, key := range []string{"c", "y"} {
						if _, err := s.Get(t.Context(), ks, []byte(key)); err == nil {
							saw += key
						} else if !errors.Is(err, kv.ErrNotFound) {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("x at %v, y at %v, %v later; saw %q in attempt %d", x, y,
					time.Duration(y.Wall-x.Wall), saw, attempts)
				if reversed := saw == "y"; reversed != test.reversed {
					t.Errorf("the reader saw %q; y without x is what it %s", saw,
						map[bool]string{true: "should have seen",
							false: "must not see"}[test.reversed])
				}
				if y.Less(x) != test.reversed {
					t.Errorf("x has timestamp %v, and y, which came after it, %v", x, y)
				}
			})
		})
	}
}

// serverOf finds the server that has the only replica of a partition.
func serverOf(t *testing.T, c *kvtest.Cluster, partition uint64) int {
	t.Helper()
	for i := range c.Servers() {
		for _, r := range c.Process(i).Replicas() {
			if r.Partition == partition {
				return i
			}
		}
	}
	t.Fatalf("no server has partition %d", partition)
	return 0
}

// commit writes one key in a transaction.
func commit(t *testing.T, client *kv.Client, value, key string,
	options ...kv.TxnOption) kv.Timestamp {
	t.Helper()
	at, err := client.Update(t.Context(),
		func(tx *kv.Txn) error {
			return tx.Put(client.Keyspace("things"), []byte(key), []byte(value))
		}, options...)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
