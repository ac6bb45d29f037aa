package main

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestProbeKeysCoverEveryPartition(t *testing.T) {
	for i, key := range probeKeys(16) {
		if at := keys.HashPartition(key, 16); int(at) != i {
			t.Errorf("key %q of partition %d lies in %d", key, i, at)
		}
	}
}
