package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// PartitionOf is the id of the partition that holds the key at present, as far as the client knows. Keys with the same id
// can travel in one Batch, unless the partition is split before it is committed (ErrCrossPartition then). It asks the
// cluster only if the client does not know yet.
func (k *Keyspace) PartitionOf(ctx context.Context, key []byte) (uint64, error) {
	const op = "locate"
	s := k.client.sender
	if ks := s.Table().KeyspaceByName(k.name); ks != nil {
		if p := ks.ByKey(key); p != nil {
			return uint64(p.ID), nil
		}
	}
	if err := k.check(op, key, nil, ""); err != nil {
		return 0, err
	}
	ctx, cancel := k.client.bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return 0, err
	}
	for {
		// Without a gap in the table every key lies in exactly one partition; one that changed meanwhile is asked for again.
		parts, err := s.PartitionsOf(ctx, ks.ID, keys.Span{})
		if err != nil {
			return 0, wrap(op, k.name, key, err)
		}
		for _, p := range parts {
			if !ks.Hashed() && !p.Span.Contains(key) {
				continue
			}
			if ks.Hashed() && p.Hash != keys.HashPartition(key, ks.Info.HashPartitions) {
				continue
			}
			return uint64(p.ID), nil
		}
	}
}
