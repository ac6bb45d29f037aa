package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Split is a split of a partition that was asked for.
type Split struct {
	// Operator is what Operators lists; 0 if there is a boundary already.
	Operator uint64
	// Partition is the one that splits, and keeps what is to the left; Child begins at the key.
	Partition, Child uint64
}

// SplitPartition begins to split the partition of a keyspace that has a key: one that begins with
// the key comes to its right. In a hash keyspace only the partition splits that the key belongs to.
// Reads and writes go on. It returns when the split is recorded; Operators shows how it goes on,
// also when the cluster's core has another leader. It may be repeated.
func (c *Client) SplitPartition(ctx context.Context, keyspace string, key []byte) (Split, error) {
	const op = "split a partition"
	if err := keys.ValidateUserKey(key); err != nil {
		return Split{}, invalid(op, keyspace, nil, "%v", err)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var out Split
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.SplitPartition(ctx, &clusterpb.SplitPartitionRequest{Keyspace: keyspace,
			Key: key})
		out = Split{r.GetOperator(), r.GetPartition(), r.GetChild()}
		return err
	})
	return out, wrapAdmin(op, keyspace, err)
}

// SizeOption says how large the partitions of a keyspace become, as it is created or altered.
type SizeOption func(*keyspaceSettings)

func (o SizeOption) create(s *keyspaceSettings) { o(s) }
func (o SizeOption) alter(s *keyspaceSettings)  { o(s) }

// SplitSize is from which size on a partition splits, in bytes: at least a mebibyte; 0 is the
// default of 256 MiB.
func SplitSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.splitSize = &bytes }
}

// MergeSize is below which size two neighbouring partitions together merge, in bytes: at most half
// of what SplitSize says; 0 is the default, 64 MiB or a quarter of what SplitSize says.
func MergeSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.mergeSize = &bytes }
}

// AutoSplit says whether partitions split and merge by themselves, as they do by default, or only
// when that is asked for.
func AutoSplit(on bool) SizeOption {
	return func(s *keyspaceSettings) { s.noAuto = new(bool); *s.noAuto = !on }
}

// sizes are the effective ones of the settings.
func (s *keyspaceSettings) sizes() (split, merge uint64) {
	k := &clusterpb.Keyspace{}
	if s.splitSize != nil {
		k.SplitSizeBytes = *s.splitSize
	}
	if s.mergeSize != nil {
		k.MergeSizeBytes = *s.mergeSize
	}
	return keys.SplitSizes(k)
}
