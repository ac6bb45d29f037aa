package keys

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The sizes of partitions, in bytes.
const (
	// DefaultSplitSize is the size from which a partition splits.
	DefaultSplitSize = 256 << 20
	// DefaultMergeSize is the size below which two neighbours together merge, or a quarter of the
	// split size if that is lower.
	DefaultMergeSize = 64 << 20
	// MinSplitSize is the lowest split size that a keyspace may have.
	MinSplitSize = 1 << 20
)

// SplitSizes returns the size from which a partition of a keyspace splits, and the size below which
// two neighbours together merge.
func SplitSizes(k *clusterpb.Keyspace) (split, merge uint64) {
	split, merge = k.GetSplitSizeBytes(), k.GetMergeSizeBytes()
	if split == 0 {
		split = DefaultSplitSize
	}
	if merge == 0 {
		merge = min(DefaultMergeSize, split/4)
	}
	return split, merge
}

// ValidateSplitSizes returns an error for sizes that a keyspace must not have. A merged partition
// must not be large enough to split at once.
func ValidateSplitSizes(k *clusterpb.Keyspace) error {
	split, merge := SplitSizes(k)
	switch {
	case split < MinSplitSize:
		return fmt.Errorf("a split size of %d bytes; it is at least %d", split, MinSplitSize)
	case merge > split/2:
		return fmt.Errorf("a merge size of %d bytes, with a split size of %d; it is at most "+
			"half of that",
			merge, split)
	}
	return nil
}
