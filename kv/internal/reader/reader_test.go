package reader

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A scan, a count and a read of all keys, over four partitions, agree on what there is at one
// moment, and a range deletion leaves nothing of its span.
func TestReadsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		fake := fakeserver.Start(t, 3)
		defer fake.Close()
		c, err := conn.New(conn.Config{Route: route.Config{Endpoints: fake.Endpoints(),
			Dial: fake.Dialer("client")}, RequestTimeout: time.Minute, DefaultClockOffset: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := conn.Ask(ctx, c, clusterpb.ClusterClient.CreateKeyspace,
			&clusterpb.CreateKeyspaceRequest{Name: "a", ReplicationFactor: 3, Token: 1,
				Partitioning: clusterpb.Partitioning_HASH, HashPartitions: 4}); err != nil {
			t.Fatal(err)
		}
		ks, err := c.Resolve(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		k := Keyspace{Conn: c, ID: ks.ID, Hashed: ks.Hashed()}
		var all [][]byte
		for i := range 500 {
			key := fmt.Appendf(nil, "k%03d", i)
			all = append(all, key)
			if i%5 == 0 {
				continue // it has no value
			}
			if _, err := c.Sender.Do(ctx, &route.Call{Keyspace: k.ID, Key: key, Write: true,
				Request: &kvpb.Request{Command: &kvpb.Request_Put{
					Put: &kvpb.PutRequest{Key: key, Value: key}}}}); err != nil {
				t.Fatal(err)
			}
		}
		rows, want := 0, 400
		s := &Scan{Keyspace: k, Yield: func(row *wire.Row) bool {
			for rows%5 == 0 || len(all[rows]) == 0 {
				rows++
			}
			if !bytes.Equal(row.Key, all[rows]) || !bytes.Equal(row.Value, all[rows]) {
				t.Errorf("row %q = %q, want %q", row.Key, row.Value, all[rows])
			}
			rows++
			return true
		}}
		if err := s.Run(ctx); err != nil || rows != len(all) || s.Left() {
			t.Errorf("scanned up to %d of %d keys: %v", rows, len(all), err)
		}
		s.Wait()
		n := &Count{Keyspace: k}
		if total, err := n.Run(ctx); err != nil || total != uint64(want) || n.At().IsZero() {
			t.Errorf("counted %d at %s, %v; want %d", total, n.At(), err, want)
		}
		there := map[int]bool{}
		at, err := k.BatchGet(ctx, all, &Query{}, nil, func(i int, row wire.Row) {
			if !bytes.Equal(row.Key, all[i]) {
				t.Errorf("row %q in the place of %q", row.Key, all[i])
			}
			there[i] = !row.Version.IsZero()
		})
		if err != nil || len(there) != len(all) || there[0] || !there[1] || at.IsZero() {
			t.Errorf("read %d of %d keys at %s, %v", len(there), len(all), at, err)
		}
		deleted, err := k.DeleteRange(ctx, keys.PrefixSpan([]byte("k4")))
		if err != nil || deleted != 80 {
			t.Errorf("deleted %d, %v", deleted, err)
		}
		past := &Count{Keyspace: k, Query: Query{At: at, HasAt: true}}
		if total, err := past.Run(ctx); err != nil || total != uint64(want) {
			t.Errorf("counted %d in the past, %v; want %d", total, err, want)
		}
		if total, err := (&Count{Keyspace: k}).Run(ctx); err != nil || total != uint64(want-80) {
			t.Errorf("counted %d after the deletion, %v", total, err)
		}
	})
}
