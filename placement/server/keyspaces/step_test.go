package keyspaces

import (
	"bytes"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The partitions of a new keyspace are sound, and tile its span or that of each of its hash
// numbers.
func TestNewPartitions(t *testing.T) {
	ranged := &clusterpb.Keyspace{Id: 7, Partitioning: clusterpb.Partitioning_RANGE}
	for _, c := range []struct {
		ks *clusterpb.Keyspace
		of *serverpb.Creation
	}{
		{ranged, &serverpb.Creation{FirstPartition: 100, Partitions: 1}},
		{ranged, &serverpb.Creation{FirstPartition: 100, Partitions: 3,
			SplitAt: [][]byte{[]byte("g"), []byte("p")}}},
		{&clusterpb.Keyspace{Id: 7, Partitioning: clusterpb.Partitioning_HASH, HashPartitions: 4},
			&serverpb.Creation{FirstPartition: 100, Partitions: 4}},
	} {
		at := keys.KeyspacePrefix(7)
		for n := range c.of.Partitions {
			p := describe(c.ks, c.of, n, []keys.NodeID{1, 2, 3})
			if err := keys.ValidatePartition(p); err != nil || p.Id != 100+n || len(p.Replicas) != 3 {
				t.Errorf("partition %d: %v, %v", n, p, err)
			}
			if c.ks.HashPartitions > 0 {
				at = keys.HashPrefix(7, uint16(n))
			}
			if !bytes.Equal(p.Start, at) {
				t.Errorf("partition %d begins at %x, want %x", n, p.Start, at)
			}
			at = p.End
		}
		if end := keys.PrefixEnd(keys.KeyspacePrefix(7)); c.ks.HashPartitions == 0 &&
			!bytes.Equal(at, end) {
			t.Errorf("the last partition ends at %x, want %x", at, end)
		}
	}
}
