package node

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition that comes near its split size is reported with a key that has half of its bytes on
// either side; where keys ascend, with one that has most of them left of it. Nothing is reported
// of one that is small, nor once it is small again.
func TestMiddleOfLargePartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 2)
		ks := &clusterpb.Keyspace{Id: 2, Name: "ks2", HashPartitions: 2, ReplicationFactor: 3,
			GcWindowSeconds: 3600, State: clusterpb.KeyspaceState_ACTIVE, SplitSizeBytes: 128 << 10}
		c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{ks}})
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		p, value := partitions[0], string(bytes.Repeat([]byte("v"), 1000))
		c.mustPut(partitions[1], "k", value)
		write := func(from, to, step int) {
			for i := from; i != to; i += step {
				c.mustPut(p, fmt.Sprintf("k%06d", i), value)
			}
		}
		// In descending order.
		write(1122, 1000, -1)
		bySize := func() *clusterpb.SplitKey {
			r, _ := c.core.report(p.Id)
			return r.GetSplit().GetBySize()
		}
		c.await("a key is reported", 30*time.Second, func() bool { return bySize() != nil })
		if k := bySize(); k.Left < 470 || k.Left > 530 || string(k.Key) < "k001055" ||
			string(k.Key) > "k001068" {
			t.Errorf("the middle is at %q, with %d thousandths left of it", k.Key, k.Left)
		}
		r, _ := c.core.report(p.Id)
		if r.Split.AscendingThousandths > 100 || r.WaitsFor != "" || r.LiveBytes < 120_000 {
			t.Errorf("%+v", r)
		}
		if r, _ := c.core.report(partitions[1].Id); r.GetSplit() != nil {
			t.Errorf("of a small one: %+v", r.Split)
		}
		// Ascending, for two windows and more.
		ascends := func() bool {
			r, _ := c.core.report(p.Id)
			return r.GetSplit().GetAscendingThousandths() > 900 && bySize().GetLeft() > 800
		}
		for i := 0; !ascends(); i++ {
			if i == 600 {
				t.Fatal("that keys ascend is not reported within a minute")
			}
			write(2000+i, 2001+i, 1)
			time.Sleep(100 * time.Millisecond) // virtual
		}
		// What a partition splits at is looked at when it splits by itself only.
		off := &clusterpb.Keyspace{Id: 2, Name: "ks2", HashPartitions: 2, ReplicationFactor: 3,
			GcWindowSeconds: 3600, State: clusterpb.KeyspaceState_ACTIVE, SplitSizeBytes: 128 << 10,
			NoAuto: true}
		c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{off}})
		c.await("nothing is reported", time.Minute, func() bool { return bySize() == nil })
	})
}
