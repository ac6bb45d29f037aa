package node

import (
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// ReadTable reads the partition table as a node of a cluster knew it last, from the log database of
// a node that does not run. It is empty if there is none. It may be some revisions old.
func ReadTable(log *engine.Log, cluster uint64) (*Table, error) { return readCache(log, cluster) }

// ReadRemovals are the partitions whose replicas are being removed from a node that does not run.
func ReadRemovals(log *engine.Log) (map[keys.PartitionID]bool, error) {
	n := &Node{config: Config{Log: log}}
	return n.markedForRemoval()
}
