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
	// Start and End are user keys, [Start, End). An empty End is no end. A hash partition that has
	// not split has neither.
	Start, End []byte
	// StartHidden and EndHidden say that there is a bound which this client may not see: while
	// authentication is enabled, bounds are keys that the client's user may read or write.
	StartHidden, EndHidden bool
	// Generation of the span and Membership version together are the epoch.
	Generation, Membership uint64
	Replicas               []ReplicaInfo
	// FrozenFor is the left neighbour that is about to consume it; 0: none is. It serves nothing
	// meanwhile.
	FrozenFor uint64
	// BoundaryAsked: the boundary at its start was asked for, and no merge takes it away by itself.
	BoundaryAsked bool
	// Leader is a node's id, 0 when none is known; Term is its term.
	Leader, Term uint64
	LiveKeys     uint64
	SizeBytes    uint64
	// LiveBytes is about how many of the bytes are of newest versions.
	LiveBytes uint64
	// Minute and FiveMinutes are what it does, averaged over so long; with Measured below that, over
	// as long as its leader has measured.
	Minute, FiveMinutes PartitionActivity
	Measured            time.Duration
}

// PartitionActivity is what a partition does in each second.
type PartitionActivity struct {
	// Load is what it costs the node that leads it, in processors.
	Load float64
	// Reads and Writes are requests, ReadBytes what reads have brought, WrittenBytes what was written
	// to the log.
	Reads, Writes, ReadBytes, WrittenBytes uint64
}

func activity(a *clusterpb.Activity) PartitionActivity {
	return PartitionActivity{Load: float64(a.GetLoadMicro()) / 1e6, Reads: a.GetReads(),
		Writes: a.GetWrites(), ReadBytes: a.GetReadBytes(), WrittenBytes: a.GetWrittenBytes()}
}

// ReplicaInfo is one copy of a partition.
type ReplicaInfo struct {
	Node, Replica uint64
	// Learner: it receives the data and has no vote yet.
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
