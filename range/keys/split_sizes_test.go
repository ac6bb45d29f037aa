package keys

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestSplitSizes(t *testing.T) {
	for _, c := range []struct {
		split, merge         uint64 // as they are set
		wantSplit, wantMerge uint64
		valid                bool
	}{
		{0, 0, 256 << 20, 64 << 20, true},
		{1 << 20, 0, 1 << 20, 256 << 10, true},
		{1<<20 - 1, 0, 1<<20 - 1, 1<<18 - 1, false},
		{1 << 30, 0, 1 << 30, 64 << 20, true},
		{0, 128 << 20, 256 << 20, 128 << 20, true},
		{0, 128<<20 + 1, 256 << 20, 128<<20 + 1, false},
		{4 << 20, 2 << 20, 4 << 20, 2 << 20, true},
		{4 << 20, 2<<20 + 1, 4 << 20, 2<<20 + 1, false},
	} {
		k := &clusterpb.Keyspace{SplitSizeBytes: c.split, MergeSizeBytes: c.merge}
		split, merge := SplitSizes(k)
		if split != c.wantSplit || merge != c.wantMerge {
			t.Errorf("%d, %d: %d, %d", c.split, c.merge, split, merge)
		}
		if err := ValidateSplitSizes(k); (err == nil) != c.valid {
			t.Errorf("%d, %d: %v", c.split, c.merge, err)
		}
	}
}
