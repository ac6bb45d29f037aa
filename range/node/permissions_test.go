package node

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What a client says of a partition does not matter: needs are of the keyspace that it belongs to,
// on a node with a replica of it and on one without. What the node does not know is refused.
func TestNeedsAreOfThePartitionsKeyspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 6)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		keyspace := uint64(partitions[0].Keyspace)
		get := func(partition uint64) *kvpb.Request {
			return &kvpb.Request{Partition: partition, Command: &kvpb.Request_Get{
				Get: &kvpb.GetRequest{Key: []byte("k")}}}
		}
		for id, n := range c.nodes {
			for _, p := range partitions {
				needs, refusal := n.Permissions(get(p.Id), nil)
				if judged, lasting, _ := n.RequiresAuth(get(p.Id)); !judged || lasting {
					t.Errorf("node %d, partition %d: %t, %t", id, p.Id, judged, lasting)
				}
				if refusal != nil || len(needs) != 1 || needs[0].Keyspace != keyspace ||
					needs[0].Right != access.Read || !bytes.Equal(needs[0].Start, []byte("k")) {
					t.Errorf("node %d, partition %d: %+v, %v", id, p.Id, needs, refusal)
				}
			}
			for _, q := range []*kvpb.Request{get(1 << 40),
				{Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{
					Partitions: []*kvpb.PartitionKeys{{Partition: partitions[0].Id, Keys: [][]byte{{1}}},
						{Partition: 1 << 40, Keys: [][]byte{{2}}}}}}},
				{Command: &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{
					Partitions: []*kvpb.PartitionRoute{{Partition: 1 << 40}}}}}} {
				if _, refusal := n.Permissions(q, nil); refusal == nil {
					t.Errorf("node %d: a partition that does not exist has needs: %v", id, q)
				}
			}
			// As clients look for leaders.
			swap := &kvpb.Request{Partition: partitions[0].Id, Command: &kvpb.Request_CompareAndSwap{
				CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: []byte("k")}}}
			needs, refusal := n.Permissions(swap, nil)
			if judged, _, _ := n.RequiresAuth(swap); !judged || refusal != nil || len(needs) != 1 ||
				needs[0].Right != access.Any || needs[0].Keyspace != keyspace {
				t.Errorf("a write of no term: judged %t, needs %+v, %v", judged, needs, refusal)
			}
			swap.Term = 1
			if judged, _, _ := n.RequiresAuth(swap); !judged {
				t.Error("a write of a term is not judged")
			}
			if needs, _ := n.Permissions(swap, nil); len(needs) != 2 {
				t.Errorf("a write of a term needs %v", needs)
			}
			now := &kvpb.Request{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
			if judged, _, _ := n.RequiresAuth(now); judged {
				t.Error("a request for the time is judged")
			}
			changes := &kvpb.Request{Partition: partitions[0].Id, Command: &kvpb.Request_Changes{
				Changes: &kvpb.ChangesRequest{}}}
			if _, lasting, _ := n.RequiresAuth(changes); !lasting {
				t.Error("a feed is judged once")
			}
			q, room := get(partitions[0].Id), make([]access.Permission, 0, 4)
			if n := testing.AllocsPerRun(50, func() { n.Permissions(q, room) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}
	})
}
