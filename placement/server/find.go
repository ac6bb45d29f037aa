package server

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// findPartition finds a partition of any keyspace; nil if there is none. The records are stored by
// keyspace: which it is, the scheduler knows, as it follows the table. Only for a partition of
// which that has not heard all records are looked through.
func (s *Server) findPartition(v *store.View, id keys.PartitionID) (*clusterpb.Partition, error) {
	if ks, known := s.scheduler.keyspace(id); known {
		if p, _, err := meta.LoadPartition(v, ks, id); p != nil || err != nil {
			return p, err
		}
	}
	for kv, err := range v.All([]byte(meta.PartitionPrefix)) {
		if err != nil {
			return nil, err
		}
		found, err := meta.LastID(kv.Key, 16)
		if err != nil {
			return nil, err
		}
		if keys.PartitionID(found) == id {
			return meta.DecodePartition(kv.Key, kv.Value)
		}
	}
	return nil, nil
}

// keyspace is which keyspace has a partition, if the scheduler has heard of that.
func (c *scheduler) keyspace(id keys.PartitionID) (ks keys.KeyspaceID, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return 0, false
	}
	ks, known = c.keyspaceOf[id]
	return ks, known
}
