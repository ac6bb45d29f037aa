package txn_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/txn"
)

// Over the real protocol, with the table that a sender has: the locks of committed transactions are
// ended in every partition of their spans, also in one that has split since, of which the sender is
// told by a refusal only.
func TestResolveInPartitionsAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeserver.Start(t, 3)
		defer c.Close()
		ranged, hashed := c.AddKeyspace("ranged", 0, "f"), c.AddKeyspace("hashed", 8)
		s := txn.NewPushSender(txn.PushSenderConfig{Open: func() (txn.Sender, error) {
			return route.New(route.Config{Endpoints: c.Endpoints(), Dial: c.Dialer("client")})
		}})
		defer s.Close()
		id := txn.ID{15: 1}
		lock := func(keyspace uint32, key string) {
			p := c.PartitionOf(keyspace, key)
			c.Set(func() {
				p.Data.Locks[key] = &fakeserver.Lock{Transaction: txn.Info{ID: id}.Proto()}
			})
		}
		locks := func() (left []string) {
			c.Set(func() {
				for _, p := range c.Partitions {
					for key := range p.Data.Locks {
						left = append(left, key)
					}
				}
			})
			slices.Sort(left)
			return slices.Compact(left)
		}
		resolve := func(what string, participants ...txn.Participant) {
			t.Helper()
			settled := s.Resolve(context.Background(), []txn.Committed{
				{ID: id, At: hlc.FromTime(time.Now()), Participants: participants}})
			if left := locks(); !settled[0] || len(left) > 0 {
				t.Errorf("%s: settled %v, locks of %v are left", what, settled, left)
			}
		}
		between := func(keyspace uint32, hash uint32, first, last string) txn.Participant {
			return txn.Participant{Keyspace: keys.KeyspaceID(keyspace), Hash: hash, First: []byte(first),
				Last: []byte(last)}
		}

		lock(ranged, "b")
		lock(ranged, "f")
		resolve("two partitions", between(ranged, 0, "b", "f"))
		lock(ranged, "g")
		lock(ranged, "x")
		c.Split(c.PartitionOf(ranged, "g"), "m", false)
		resolve("a partition that has split", between(ranged, 0, "g", "x"))
		lock(ranged, "x")
		c.Split(c.PartitionOf(ranged, "x"), "u", false)
		resolve("named by a key of the other half",
			txn.Participant{Keyspace: keys.KeyspaceID(ranged), First: []byte("g")})

		var in []txn.Participant
		for i := range 50 {
			key := fmt.Sprint(i)
			lock(hashed, key)
			in = append(in, between(hashed, keys.HashPartition([]byte(key), 8), key, key))
		}
		resolve("hash partitions", in...)
		for i := range 50 {
			lock(hashed, fmt.Sprint(i))
		}
		resolve("hash partitions, named by one key",
			txn.Participant{Keyspace: keys.KeyspaceID(hashed), First: []byte("g")})

		// The partitions of a hash number split, and merge again.
		first, last := "", ""
		for i := range 50 {
			if key := fmt.Sprint(i); keys.HashPartition([]byte(key), 8) == 3 {
				lock(hashed, key)
				if first == "" || key < first {
					first = key
				}
				last = max(last, key)
			}
		}
		three := between(hashed, 3, first, last)
		lower := c.PartitionOf(hashed, first)
		c.Split(lower, last, false)
		resolve("a hash partition that has split", three)
		lock(hashed, first)
		lock(hashed, last)
		resolve("a hash number of two partitions", three)
		lock(hashed, first)
		lock(hashed, last)
		resolve("a hash number of two partitions, named by one key",
			txn.Participant{Keyspace: keys.KeyspaceID(hashed), First: []byte(first)})
		lock(hashed, first)
		lock(hashed, last)
		c.Merge(lower, false)
		resolve("two partitions that have merged", three)

		// What is nowhere in the table is not settled.
		for _, p := range []txn.Participant{between(99999, 0, "a", "b"), between(hashed, 8, "a", "b")} {
			if settled := s.Resolve(context.Background(), []txn.Committed{
				{ID: id, At: hlc.Timestamp{Wall: 1}, Participants: []txn.Participant{p}}}); settled[0] {
				t.Errorf("%+v is settled", p)
			}
		}
	})
}
