package admin

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// PartitionInfo describes a partition.
type PartitionInfo struct {
	ID       uint64
	Keyspace string
	// Hash is the number of a hash partition; -1 in a range keyspace.
	Hash int
	// Start and End are user keys: the partition has the keys in [Start, End). An empty End means no
	// end. A hash partition that has not split has neither.
	Start, End []byte
	// StartHidden and EndHidden: the partition has such a bound, and this client may not see it.
	// While authentication is enabled, a client sees only bounds that its user may read or write.
	StartHidden, EndHidden bool
	// Generation of the span and Membership version together are the epoch.
	Generation, Membership uint64
	Replicas               []ReplicaInfo
	// FrozenFor is the left neighbour with which the partition is about to merge, or 0. A frozen
	// partition serves nothing.
	FrozenFor uint64
	// BoundaryAsked: a user asked for the boundary at the partition's start, so no automatic merge
	// removes it.
	BoundaryAsked bool
	// Leader is the id of the leading node, 0 if none is known; Term is the leader's term.
	Leader, Term uint64
	LiveKeys     uint64
	SizeBytes    uint64
	// LiveBytes is the approximate size of the newest versions in bytes.
	LiveBytes uint64
	// Minute and FiveMinutes are the partition's activity, averaged over that time, or over Measured
	// if Measured is shorter.
	Minute, FiveMinutes PartitionActivity
	Measured            time.Duration
}

// PartitionActivity is the activity of a partition for each second.
type PartitionActivity struct {
	// Load is the cost on the leading node, in processors.
	Load float64
	// Reads and Writes are numbers of requests. ReadBytes are the bytes that reads returned,
	// WrittenBytes the bytes written to the log.
	Reads, Writes, ReadBytes, WrittenBytes uint64
}

func activity(a *clusterpb.Activity) PartitionActivity {
	return PartitionActivity{Load: float64(a.GetLoadMicro()) / 1e6, Reads: a.GetReads(),
		Writes: a.GetWrites(), ReadBytes: a.GetReadBytes(), WrittenBytes: a.GetWrittenBytes()}
}

// ReplicaInfo is one copy of a partition.
type ReplicaInfo struct {
	Node, Replica uint64
	// Learner: the replica receives the data and does not vote yet.
	Learner bool
}

func partitionInfo(p *clusterpb.PartitionInfo) PartitionInfo {
	d := p.Partition
	span := keys.PartitionUserSpan(d).Clone()
	info := PartitionInfo{
		ID: d.Id, Keyspace: p.Keyspace, Hash: -1, Start: span.Start, End: span.End,
		StartHidden: p.StartHidden, EndHidden: p.EndHidden,
		Generation: d.Generation, Membership: d.Membership,
		FrozenFor: d.Frozen.GetPartition(), BoundaryAsked: d.BoundaryAsked,
		Leader: p.LeaderNode, Term: p.Term, LiveKeys: p.LiveKeys, SizeBytes: p.SizeBytes,
		LiveBytes: p.LiveBytes, Minute: activity(p.Minute), FiveMinutes: activity(p.FiveMinutes),
		Measured: time.Duration(p.MeasuredSeconds) * time.Second,
	}
	if d.PrefixLength == keys.HashPrefixLength {
		info.Hash = int(d.Hash)
	}
	for _, r := range d.Replicas {
		info.Replicas = append(info.Replicas,
			ReplicaInfo{Node: r.Node, Replica: r.Replica,
				Learner: r.Role == clusterpb.ReplicaRole_LEARNER})
	}
	return info
}

func sortPartitions(all []PartitionInfo) {
	slices.SortStableFunc(all, func(a, b PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
			bytes.Compare(a.Start, b.Start))
	})
}

// Partitions lists the partitions of a keyspace in key order, or with an empty name those of all
// keyspaces.
func (c *Client) Partitions(ctx context.Context, keyspace string) ([]PartitionInfo, error) {
	const op = "list partitions"
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	if keyspace != "" {
		if _, err := c.conn.Resolve(ctx, keyspace); err != nil {
			return nil, c.conn.Wrap(op, keyspace, err)
		}
	}
	listed, err := c.conn.Partitions(ctx, keyspace)
	if err != nil {
		return nil, c.conn.Wrap(op, keyspace, err)
	}
	var all []PartitionInfo
	for _, p := range listed {
		all = append(all, partitionInfo(p))
	}
	sortPartitions(all)
	return all, nil
}
