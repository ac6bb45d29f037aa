package load

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Leaders are spread evenly over the nodes that can lead, and one that leads already goes on.
func TestLeadersOf(t *testing.T) {
	partition := func(id, leader uint64, learner uint64) *clusterpb.PartitionInfo {
		p := &clusterpb.PartitionInfo{Partition: &clusterpb.Partition{Id: id}, LeaderNode: leader}
		for node := uint64(1); node <= 3; node++ {
			r := &clusterpb.Replica{Node: node}
			if node == learner {
				r.Role = clusterpb.ReplicaRole_LEARNER
			}
			p.Partition.Replicas = append(p.Partition.Replicas, r)
		}
		return p
	}
	parts := []*clusterpb.PartitionInfo{partition(1, 3, 0), partition(2, 3, 0), partition(3, 3, 0),
		partition(4, 1, 2)}
	got := leadersOf(parts, map[uint64]bool{1: true, 2: true, 3: true})
	for id, want := range map[uint64]uint64{1: 3, 2: 1, 3: 2, 4: 1} {
		if got[id] != want {
			t.Errorf("partition %d is to be led by node %d, want %d", id, got[id], want)
		}
	}
	if got := leadersOf(parts, nil); len(got) > 0 {
		t.Errorf("without a node that can lead: %v", got)
	}
}

// Every node gets a part, but parts stay worth a split.
func TestPartSize(t *testing.T) {
	for _, c := range []struct {
		total, splitSize uint64
		nodes            int
		want             uint64
	}{
		{10 << 30, 256 << 20, 3, 128 << 20},
		{300 << 20, 256 << 20, 3, 100 << 20},
		{30 << 20, 256 << 20, 3, leastPart},
		{30 << 20, 2 << 20, 3, 1 << 20},
		{0, 1, 0, 1},
	} {
		if got := partSize(c.total, c.splitSize, c.nodes); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
