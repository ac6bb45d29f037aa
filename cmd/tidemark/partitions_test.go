package main

import (
	"testing"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// Partitions are listed by what was asked for, those with the most first, and no more than asked
// for; without that as they come.
func TestTopPartitions(t *testing.T) {
	all := []admin.PartitionInfo{{ID: 1, SizeBytes: 5}, {ID: 2, SizeBytes: 9}, {ID: 3}}
	all[0].Minute, all[2].Minute = admin.PartitionActivity{Load: 0.2, Writes: 1},
		admin.PartitionActivity{Load: 0.5, Reads: 7}
	for by, want := range map[string][]uint64{
		"": {1, 2, 3}, "load": {3, 1}, "size": {2, 1}, "reads": {3, 1}, "writes": {1, 2},
	} {
		o := partitionOrder{by: by, limit: 2}
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		got := o.apply(append([]admin.PartitionInfo{}, all...))
		if len(got) != len(want) {
			t.Errorf("%q: %d partitions", by, len(got))
			continue
		}
		for i := range got {
			if got[i].ID != want[i] {
				t.Errorf("%q: partition %d at %d, want %d", by, got[i].ID, i, want[i])
			}
		}
	}
}
