package fakeserver

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Split splits a partition in two. The upper half gets a new id and another leader. Split does
// nothing if the partition does not contain the key. The table shows the split only if told is set.
func (c *Cluster) Split(p *Partition, at string, told bool) {
	c.Set(func() { c.SplitLocked(p, at, told) })
}

// SplitLocked is Split for a script.
func (c *Cluster) SplitLocked(p *Partition, at string, told bool) {
	cut := append(bytes.Clone(keys.PartitionPrefix(p.Desc)), at...)
	if bytes.Compare(cut, p.Desc.Start) <= 0 || bytes.Compare(cut, p.Desc.End) >= 0 {
		return
	}
	upper := c.addPartitionLocked(p.Data, &clusterpb.Partition{
		Keyspace: p.Desc.Keyspace, Hash: p.Desc.Hash, Start: cut, End: p.Desc.End,
		PrefixLength: p.Desc.PrefixLength, SplitFrom: p.Desc.Id,
	})
	upper.HashPartitions = p.HashPartitions
	upper.Desc.Generation = p.Desc.Generation + 1
	upper.Highest, upper.Read = p.Highest, p.Read
	upper.Low = hlc.Max(p.Low, hlc.Timestamp{Wall: time.Now().UnixNano() + int64(2*MaxOffset)})
	lower := cloned(p.Desc)
	lower.End, lower.Generation = cut, p.Desc.Generation+1
	p.Desc = lower
	if told {
		c.TellLocked()
	}
}

// Merge merges a partition with its right neighbour. It does nothing if there is none.
func (c *Cluster) Merge(p *Partition, told bool) { c.Set(func() { c.MergeLocked(p, told) }) }

// MergeLocked is Merge for a script.
func (c *Cluster) MergeLocked(p *Partition, told bool) {
	for id, right := range c.Partitions {
		if right.Desc.Keyspace != p.Desc.Keyspace || right.Desc.Hash != p.Desc.Hash ||
			!bytes.Equal(right.Desc.Start, p.Desc.End) {
			continue
		}
		delete(c.Partitions, id)
		d := cloned(p.Desc)
		d.End, d.Generation = right.Desc.End, max(d.Generation, right.Desc.Generation)+1
		p.Desc = d
		p.Highest, p.Read = hlc.Max(p.Highest, right.Highest), hlc.Max(p.Read, right.Read)
		p.Low = hlc.Max(p.Low, right.Low)
		if told {
			c.TellLocked()
		}
		return
	}
}

// PartitionsOf returns the partitions of a keyspace, in order. The caller is in Set, or in a
// script.
func (c *Cluster) PartitionsOf(keyspace uint32) (all []*Partition) {
	for _, p := range c.Partitions {
		if p.Desc.Keyspace == keyspace {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Partition) int {
		return cmp.Or(cmp.Compare(a.Desc.Hash, b.Desc.Hash), bytes.Compare(a.Desc.Start, b.Desc.Start))
	})
	return all
}

// staleLocked refuses a request with a wrong generation of a partition.
func (c *Cluster) staleLocked(p *Partition) *kvpb.Response {
	refused := Refusal(kvpb.ErrorCode_STALE_EPOCH, "another generation")
	var all []*clusterpb.Partition
	for _, other := range c.PartitionsOf(p.Desc.Keyspace) {
		all = append(all, other.Desc)
	}
	if c.Brings != nil {
		all = c.Brings(p.Desc, all)
	}
	refused.Error.Partitions = all
	return refused
}

// checkKeysLocked fails the test if the keys of a request are not in the request's partition.
func (c *Cluster) checkKeysLocked(p *Partition, r *kvpb.Request) {
	all := r.GetBatchGet().GetKeys()
	for _, key := range [][]byte{r.GetGet().GetKey(), r.GetPut().GetKey(), r.GetDelete().GetKey(),
		r.GetCompareAndSwap().GetKey()} {
		if len(key) > 0 {
			all = append(all, key)
		}
	}
	for _, m := range r.GetPrepare().GetMutations() {
		all = append(all, m.Key)
	}
	for _, key := range all {
		if !p.Contains(string(key)) {
			c.TB.Errorf("key %q was looked for in partition %v by %v", key, p.Desc, r)
		}
	}
}
