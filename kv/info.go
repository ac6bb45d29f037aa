package kv

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// KeyspaceInfo describes a keyspace.
type KeyspaceInfo struct {
	ID   uint32
	Name string
	// HashPartitions is the number of hash partitions; 0 for a range keyspace.
	HashPartitions int
	// Partitions is how many partitions there are at present.
	Partitions int
	// SplitAt are the keys at which the partitions of a range keyspace begin, in order, as this
	// client's partition table shows them; the first partition, which begins below every key, is
	// left out. A hash keyspace has none. They are the caller's. See SplitAtHidden.
	SplitAt  [][]byte
	Replicas int
	// Placement is where replicas have to be, and Leaders where leaders should be: see PlaceReplicas
	// and PreferLeaders. Empty: anywhere.
	Placement, Leaders string
	GCWindow           time.Duration
	// ClosedLag is how far behind the present replicas can be read that do not lead.
	ClosedLag time.Duration
	// CommitWait: every write to it is acknowledged, and seen, only when every clock has passed its
	// timestamp.
	CommitWait bool
	// MaxTransactionAge and MaxTransactionIdle are for how long transactions may hold locks of it.
	MaxTransactionAge, MaxTransactionIdle time.Duration
	// DefaultTTL is how long a value lives whose write does not say so; 0: until it is replaced.
	DefaultTTL time.Duration
	// SplitSize is from which size on a partition splits, and MergeSize below which two neighbours
	// together merge, in bytes; AutoSplit says whether they do by themselves.
	SplitSize, MergeSize uint64
	AutoSplit            bool
	State                KeyspaceState
	// WaitingFor says what a keyspace in state "creating" lacks.
	WaitingFor string
}

// Hashed reports whether the keyspace is partitioned by hash; otherwise it is by range.
func (i KeyspaceInfo) Hashed() bool { return i.HashPartitions > 0 }

// SplitAtHidden reports whether SplitAt is empty because the client's user has no right to any key
// of the keyspace, or got the first one a moment ago.
func (i KeyspaceInfo) SplitAtHidden() bool { return i.SplitAt != nil && len(i.SplitAt) == 0 }

// KeyspaceState is where a keyspace is in its life.
type KeyspaceState string

// The states of a keyspace.
const (
	KeyspaceCreating KeyspaceState = "creating"
	KeyspaceActive   KeyspaceState = "active"
	KeyspaceDropping KeyspaceState = "dropping"
)

func keyspaceInfo(i *clusterpb.KeyspaceInfo, table *route.Table) KeyspaceInfo {
	k := i.GetKeyspace()
	info := KeyspaceInfo{
		ID:         k.GetId(),
		Name:       k.GetName(),
		Partitions: int(i.Partitions),
		Replicas:   int(k.GetReplicationFactor()),
		GCWindow:   time.Duration(k.GetGcWindowSeconds()) * time.Second,
		ClosedLag:  time.Duration(k.GetClosedTimestampLagMillis()) * time.Millisecond,
		CommitWait: k.GetCommitWait(),
		DefaultTTL: time.Duration(k.GetDefaultTtlMillis()) * time.Millisecond,
		WaitingFor: i.WaitingFor,
		Placement:  k.GetPlacement(),
		Leaders:    k.GetLeaders(),
	}
	info.SplitSize, info.MergeSize = keys.SplitSizes(k)
	info.AutoSplit = !k.GetNoAuto()
	limits := txn.LimitsOf(k)
	info.MaxTransactionAge, info.MaxTransactionIdle = limits.Age, limits.Idle
	if k.GetPartitioning() == clusterpb.Partitioning_HASH {
		info.HashPartitions = int(k.GetHashPartitions())
	} else if known := table.KeyspaceByID(keys.KeyspaceID(k.GetId())); known != nil {
		hidden := false
		for _, p := range known.Partitions() {
			if len(p.Span.Start) > 0 {
				info.SplitAt = append(info.SplitAt, clone(p.Span.Start))
			}
			hidden = hidden || p.Boundless() && info.Partitions > 1
		}
		if hidden {
			info.SplitAt = [][]byte{}
		}
	}
	switch k.GetState() {
	case clusterpb.KeyspaceState_ACTIVE:
		info.State = KeyspaceActive
	case clusterpb.KeyspaceState_DROPPING:
		info.State = KeyspaceDropping
	default:
		info.State = KeyspaceCreating
	}
	return info
}

// NodeInfo describes a data node.
type NodeInfo struct {
	ID           uint64
	Address      string
	HTTPAddress  string
	Region, Zone string
	Version      string
	// Tags are further labels, which placement rules can name.
	Tags  []string
	Alive bool
	// SilentSince is since when nothing was heard of it; zero if it is alive.
	SilentSince time.Time
	// SilentFor is how long ago that was, by the cluster's clock.
	SilentFor time.Duration
	// Status says whether it is drained or decommissioned.
	Status   NodeStatus
	Started  time.Time
	Replicas int
	Leaders  int
	DiskUsed uint64
	DiskFree uint64
	DiskFull bool
	// DiskSlow: its log takes many times longer to sync than those of other nodes, so it leaves
	// leadership to them. LogSync is how long a sync takes; 0: it is not known.
	DiskSlow bool
	LogSync  time.Duration
	// ClockUnhealthy: its clock is off, or has jumped, and it serves nothing.
	ClockUnhealthy bool
	// FailedReplicas are replicas on its disk that are damaged or failed for another reason, and
	// serve nothing.
	FailedReplicas uint64
	// NotReady is why the node is not ready, one sentence each; empty if it is.
	NotReady []string
	// Silent are nodes that share partitions with it, and of which it hears nothing.
	Silent []uint64
	// Behind are replicas of partitions that it leads which have not caught up, by their nodes.
	Behind map[uint64]int
	// AwaitsReports are nodes that are alive and have not reported since this node has started. While
	// there is any, it is not known whether the node's replicas have caught up.
	AwaitsReports []uint64
}

func nodeInfo(n *clusterpb.Node) NodeInfo {
	info := NodeInfo{
		ID: n.Id, Address: n.Address, HTTPAddress: n.HttpAddress,
		Region: n.GetLocality().GetRegion(), Zone: n.GetLocality().GetZone(),
		Version: n.Version, Alive: n.Alive, Tags: slices.Clone(n.Tags),
		Status:   nodeStatusOf(n.Status),
		Replicas: int(n.GetStats().GetReplicas()), Leaders: int(n.GetStats().GetLeaders()),
		DiskUsed: n.GetStats().GetDiskUsedBytes(), DiskFree: n.GetStats().GetDiskFreeBytes(),
		DiskFull: n.GetStats().GetDiskFull(), ClockUnhealthy: n.GetStats().GetClockUnhealthy(),
		DiskSlow:       n.GetStats().GetDiskSlow(),
		LogSync:        time.Duration(min(n.GetStats().GetSyncMicros(), 1<<40)) * time.Microsecond,
		FailedReplicas: n.GetStats().GetFailedReplicas(),
		NotReady:       slices.Clone(n.GetStats().GetNotReady()),
		Silent:         slices.Clone(n.GetStats().GetSilent()),
		AwaitsReports:  slices.Clone(n.AwaitsReports),
	}
	for _, b := range n.GetStats().GetBehind() {
		if info.Behind == nil {
			info.Behind = map[uint64]int{}
		}
		info.Behind[b.Node] += int(b.Replicas)
	}
	if n.SilentSinceUnixMs > 0 && !n.Alive {
		info.SilentSince = time.UnixMilli(n.SilentSinceUnixMs)
	}
	if n.StartedUnix > 0 {
		info.Started = time.Unix(n.StartedUnix, 0)
	}
	return info
}

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

// Status is how the cluster looks to one server.
type Status struct {
	Cluster uint64
	// Node is the data node that answered; 0 if the server is only a member of the core.
	Node uint64
	// Core: the server is a member of the core.
	Core       bool
	CoreLeader string
	Members    []CoreMember
	// Ready: keyspaces can be created and used. If not, WaitingFor says why.
	Ready      bool
	WaitingFor string
	Version    string
	// Leaderless are partitions with a replica on that server that have had no leader for a while,
	// as it knows itself: some of them, of LeaderlessTotal.
	Leaderless      []LeaderlessPartition
	LeaderlessTotal int
}

// LeaderlessPartition is a partition that cannot be read or written.
type LeaderlessPartition struct {
	ID       uint64
	Keyspace string
	// SilentNodes are the nodes with a replica of it that do not answer.
	SilentNodes []uint64
}

// CoreMember is a member of the consistent core.
type CoreMember struct {
	Address string
	Replica uint64
}

func statusOf(r *clusterpb.StatusResponse) Status {
	st := Status{
		Cluster: r.Cluster, Node: r.Node, Core: r.Core, CoreLeader: r.CoreLeader,
		Ready: r.Ready, WaitingFor: r.WaitingFor, Version: r.Version,
	}
	st.LeaderlessTotal = int(r.LeaderlessTotal)
	for _, p := range r.Leaderless {
		st.Leaderless = append(st.Leaderless,
			LeaderlessPartition{ID: p.Partition, Keyspace: p.Keyspace, SilentNodes: p.SilentNodes})
	}
	for _, m := range r.Members {
		st.Members = append(st.Members, CoreMember{Address: m.Address, Replica: m.Replica})
	}
	return st
}
