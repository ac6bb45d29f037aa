package server

import (
	"math"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Whatever a node reports of the sizes of partitions, their sum over a full cluster can be counted.
func TestReportedSizesAddUp(t *testing.T) {
	p := plannerPartition(&clusterpb.Partition{Id: 1, Keyspace: 1},
		reports.Partition{Report: &clusterpb.PartitionReport{SizeBytes: math.MaxUint64,
			LeaderLoadMicro: math.MaxUint64, FollowerLoadMicro: math.MaxUint64,
			MeasuredSeconds: math.MaxUint32}}, surroundings{})
	const partitions, replicas = 200_000, 6
	if p.Bytes <= 0 || p.Bytes > math.MaxInt64/(partitions*replicas) {
		t.Errorf("%d partitions of %d bytes each do not add up", partitions, p.Bytes)
	}
	if p.LeaderLoad <= 0 || p.FollowerLoad <= 0 || p.Measured <= 0 {
		t.Errorf("load %d, %d, measured for %s", p.LeaderLoad, p.FollowerLoad, p.Measured)
	}
}
