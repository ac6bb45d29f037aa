package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
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
	// Partitions is the present number of partitions.
	Partitions int
	// SplitAt are the keys at which the partitions of a range keyspace begin, in order, according
	// to this client's partition table; the first partition, which begins below every key, is left
	// out. nil for a hash keyspace. The caller may keep and change them. See SplitAtHidden.
	SplitAt  [][]byte
	Replicas int
	// Placement says where replicas have to be, and Leaders where leaders should be: see
	// kv.PlaceReplicas and kv.PreferLeaders. An empty text means anywhere.
	Placement, Leaders string
	GCWindow           time.Duration
	// ClosedLag is how far replicas that do not lead lag behind the present for reads.
	ClosedLag time.Duration
	// CommitWait: a write to the keyspace is acknowledged, and visible, only when every clock has
	// passed its timestamp.
	CommitWait bool
	// MaxTransactionAge and MaxTransactionIdle limit how long a transaction may hold locks in the
	// keyspace, and how long its application may be idle meanwhile.
	MaxTransactionAge, MaxTransactionIdle time.Duration
	// DefaultTTL is the time to live of values whose write sets none. If it is 0, such values do not
	// expire.
	DefaultTTL time.Duration
	// SplitSize is the size from which a partition splits, MergeSize the size below which two
	// neighbours together merge, both in bytes. AutoSplit: partitions split and merge by
	// themselves.
	SplitSize, MergeSize uint64
	AutoSplit            bool
	// Quotas has the quotas. A quota is 0 if there is no such quota. Used has the used amounts. It is
	// nil if the keyspace has no quota, or if the core does not know the amounts yet.
	Quotas Quotas
	Used   *Quotas
	State  KeyspaceState
	// WaitingFor says what a keyspace in state "creating" lacks.
	WaitingFor string
}

// Quotas has the amounts that quotas can limit. See kv.QuotaBytes, kv.QuotaRequests and
// kv.QuotaThroughput.
type Quotas struct {
	// Bytes is the number of stored bytes. Requests is a number of requests a second. Throughput is a
	// number of bytes of requests and answers a second. In KeyspaceInfo.Used, Requests and Throughput
	// include the admitted and the waiting requests of about two seconds. They are 0 if the keyspace
	// has no such quota.
	Bytes, Requests, Throughput uint64
}

// Hashed reports whether the keyspace is partitioned by hash; otherwise it is by range.
func (i KeyspaceInfo) Hashed() bool { return i.HashPartitions > 0 }

// SplitAtHidden reports whether SplitAt is empty because the client's user has no right to any key
// of the keyspace, or got the first right a moment ago.
func (i KeyspaceInfo) SplitAtHidden() bool { return i.SplitAt != nil && len(i.SplitAt) == 0 }

// Partitioning returns the keyspace's partitioning in the form of kv.ParsePartitioning: "hash:8" or
// "range".
func (i KeyspaceInfo) Partitioning() string {
	if i.HashPartitions == 0 {
		return "range"
	}
	return fmt.Sprintf("hash:%d", i.HashPartitions)
}

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
	info.Quotas = Quotas{k.GetQuotaBytes(), k.GetQuotaRequestsPerSecond(), k.GetQuotaBytesPerSecond()}
	if u := i.Usage; u != nil {
		info.Used = &Quotas{u.Bytes, u.RequestsPerSecond, u.BytesPerSecond}
	}
	limits := txn.LimitsOf(k)
	info.MaxTransactionAge, info.MaxTransactionIdle = limits.Age, limits.Idle
	if k.GetPartitioning() == clusterpb.Partitioning_HASH {
		info.HashPartitions = int(k.GetHashPartitions())
	} else if known := table.KeyspaceByID(keys.KeyspaceID(k.GetId())); known != nil {
		hidden := false
		for _, p := range known.Partitions() {
			if len(p.Span.Start) > 0 {
				info.SplitAt = append(info.SplitAt, bytes.Clone(p.Span.Start))
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

// Keyspaces lists the keyspaces.
func (c *Client) Keyspaces(ctx context.Context) ([]KeyspaceInfo, error) {
	all, err := c.keyspaces(ctx, func(*clusterpb.Keyspace) bool { return true })
	return all, c.conn.Wrap("list keyspaces", "", err)
}

// Keyspace describes one keyspace, or fails with kv.ErrKeyspaceNotFound.
func (c *Client) Keyspace(ctx context.Context, name string) (KeyspaceInfo, error) {
	found, err := c.keyspaces(ctx, func(k *clusterpb.Keyspace) bool { return k.GetName() == name })
	if err == nil && len(found) == 0 {
		err = &route.Error{Cause: route.ErrNoKeyspace}
	}
	if err != nil {
		return KeyspaceInfo{}, c.conn.Wrap("describe keyspace", name, err)
	}
	return found[0], nil
}

// keyspaces describes the keyspaces that are wanted.
func (c *Client) keyspaces(ctx context.Context,
	wanted func(*clusterpb.Keyspace) bool) (all []KeyspaceInfo, err error) {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	r, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.ListKeyspaces,
		&clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return nil, err
	}
	listed := slices.DeleteFunc(r.GetKeyspaces(),
		func(info *clusterpb.KeyspaceInfo) bool { return !wanted(info.GetKeyspace()) })
	if err := c.learnSplits(ctx, listed); err != nil {
		return nil, err
	}
	for _, info := range listed {
		all = append(all, keyspaceInfo(info, c.conn.Sender.Table()))
	}
	return all, nil
}

// learnSplits waits until the table shows the partitions of range keyspaces that are split.
func (c *Client) learnSplits(ctx context.Context, listed []*clusterpb.KeyspaceInfo) error {
	var asked []*route.Keyspace
	table := c.conn.Sender.Table()
	for _, info := range listed {
		k := info.GetKeyspace()
		if info.Partitions < 2 || k.GetState() != clusterpb.KeyspaceState_ACTIVE ||
			k.GetPartitioning() != clusterpb.Partitioning_RANGE {
			continue
		}
		ks := table.KeyspaceByID(keys.KeyspaceID(k.GetId()))
		if ks == nil { // the keyspace is new, and the table does not show it yet
			var err error
			if ks, err = c.conn.Resolve(ctx, k.GetName()); err != nil {
				if errors.Is(err, route.ErrNoKeyspace) {
					continue // the keyspace was dropped meanwhile
				}
				return err
			}
		}
		if !ks.Followed() {
			c.conn.Sender.Subscribe(ks)
			asked = append(asked, ks)
		}
	}
	for _, ks := range asked {
		_, err := c.conn.Sender.PartitionsOf(ctx, ks.ID, keys.Span{})
		if err != nil && !errors.Is(err, route.ErrNoKeyspace) { // dropped meanwhile
			return err
		}
	}
	return nil
}
