package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// CreateKeyspace creates a keyspace and returns when it can be used. ErrKeyspaceExists if there is
// one of this name, even with the same settings. If ctx ends first, the keyspace exists and goes on
// being set up, and the error says what is missing; nodes, for example. A context without a
// deadline is bounded by the request timeout from one partition that is made to the next, not as a
// whole: thousands of partitions take their time. CreateKeyspaceIfMissing goes on waiting for one
// that is being set up.
func (c *Client) CreateKeyspace(ctx context.Context, name string,
	options ...KeyspaceOption) (*Keyspace, error) {
	const op = "create keyspace"
	if name == "" {
		return nil, invalid(op, "", nil, "a keyspace needs a name")
	}
	settings := newKeyspaceSettings(options)
	if settings.bad != nil {
		return nil, invalid(op, name, nil, "%v", settings.bad)
	}
	request := settings.request(name)
	for request.Token == 0 {
		request.Token = c.random()
	}
	bounded, cancel := c.bound(ctx)
	defer cancel()
	var created *clusterpb.Keyspace
	err := c.sender.Admin(bounded, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.CreateKeyspace(ctx, request)
		created = r.GetKeyspace()
		return err
	})
	if err != nil {
		return nil, wrapAdmin(op, name, err)
	}
	total := max(int(request.HashPartitions), len(request.SplitAt)+1)
	if err := c.awaitKeyspace(ctx, keys.KeyspaceID(created.GetId()), name, total); err != nil {
		return nil, wrapAdmin(op, name, err)
	}
	return c.Keyspace(name), nil
}

// DropKeyspace deletes a keyspace with everything in it, for good. ErrKeyspaceNotFound if there is
// none of this name.
func (c *Client) DropKeyspace(ctx context.Context, name string) error {
	const op = "drop keyspace"
	ctx, cancel := c.bound(ctx)
	defer cancel()
	request := &clusterpb.DropKeyspaceRequest{Name: name}
	for request.Token == 0 {
		request.Token = c.random()
	}
	dropped := c.sender.Table().KeyspaceByName(name)
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		_, err := cluster.DropKeyspace(ctx, request)
		return err
	})
	if err != nil {
		return wrapAdmin(op, name, err)
	}
	// So that this client's next call does not find it any more. It is dropped in any case.
	for dropped != nil {
		table := c.sender.Table()
		ks := table.KeyspaceByName(name)
		if ks == nil || ks.ID != dropped.ID || c.await(ctx, table, time.Second) != nil {
			break
		}
	}
	return nil
}

// Keyspaces lists the keyspaces.
func (c *Client) Keyspaces(ctx context.Context) ([]KeyspaceInfo, error) {
	const op = "list keyspaces"
	ctx, cancel := c.bound(ctx)
	defer cancel()
	listed, err := c.listKeyspaces(ctx)
	if err == nil {
		err = c.learnSplits(ctx, listed)
	}
	if err != nil {
		return nil, wrapAdmin(op, "", err)
	}
	var all []KeyspaceInfo
	for _, info := range listed {
		all = append(all, keyspaceInfo(info, c.sender.Table()))
	}
	return all, nil
}

// listKeyspaces asks the core for the keyspaces.
func (c *Client) listKeyspaces(ctx context.Context) (all []*clusterpb.KeyspaceInfo, err error) {
	err = c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
		all = r.GetKeyspaces()
		return err
	})
	return all, err
}

// learnSplits has the table show the partitions of range keyspaces, where they are split.
func (c *Client) learnSplits(ctx context.Context, listed []*clusterpb.KeyspaceInfo) error {
	var asked []*route.Keyspace
	table := c.sender.Table()
	for _, info := range listed {
		k := info.GetKeyspace()
		if info.Partitions < 2 || k.GetState() != clusterpb.KeyspaceState_ACTIVE ||
			k.GetPartitioning() != clusterpb.Partitioning_RANGE {
			continue
		}
		ks := table.KeyspaceByID(keys.KeyspaceID(k.GetId()))
		if ks == nil { // it was made just now, and the table does not show it yet
			var err error
			if ks, err = c.Keyspace(k.GetName()).resolve(ctx, "describe keyspace"); err != nil {
				if errors.Is(err, ErrKeyspaceNotFound) {
					continue // dropped meanwhile
				}
				return err
			}
		}
		if !ks.Followed() {
			c.sender.Subscribe(ks)
			asked = append(asked, ks)
		}
	}
	for _, ks := range asked {
		_, err := c.sender.PartitionsOf(ctx, ks.ID, keys.Span{})
		if err != nil && !errors.Is(err, route.ErrNoKeyspace) { // dropped meanwhile
			return err
		}
	}
	return nil
}

// Describe returns what the cluster knows about the keyspace.
func (k *Keyspace) Describe(ctx context.Context) (KeyspaceInfo, error) {
	const op = "describe keyspace"
	c := k.client
	ctx, cancel := c.bound(ctx)
	defer cancel()
	all, err := c.listKeyspaces(ctx)
	if err != nil {
		return KeyspaceInfo{}, wrapAdmin(op, k.name, err)
	}
	for i, info := range all {
		if info.GetKeyspace().GetName() != k.name {
			continue
		}
		if err := c.learnSplits(ctx, all[i:i+1]); err != nil {
			return KeyspaceInfo{}, wrapAdmin(op, k.name, err)
		}
		return keyspaceInfo(info, c.sender.Table()), nil
	}
	return KeyspaceInfo{}, wrap(op, k.name, nil, &route.Error{Cause: route.ErrNoKeyspace})
}

// Nodes lists the data nodes.
func (c *Client) Nodes(ctx context.Context) ([]NodeInfo, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var all []NodeInfo
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListNodes(ctx, &clusterpb.ListNodesRequest{})
		all = nil
		for _, n := range r.GetNodes() {
			info := nodeInfo(n)
			if !info.SilentSince.IsZero() {
				info.SilentFor = ago(n.SilentSinceUnixMs, r.NowUnixMs)
			}
			all = append(all, info)
		}
		return err
	})
	return all, wrapAdmin("list nodes", "", err)
}

// ago is how long a moment lies back by the clock of the member that tells it. Members of earlier
// versions do not tell theirs: then it is by the clock of this machine.
func ago(unixMs, nowUnixMs int64) time.Duration {
	if nowUnixMs == 0 {
		nowUnixMs = time.Now().UnixMilli()
	}
	return time.Duration(max(nowUnixMs-unixMs, 0)) * time.Millisecond
}

// Partitions lists the partitions of a keyspace in key order, or with an empty name those of all
// keyspaces.
func (c *Client) Partitions(ctx context.Context, keyspace string) ([]PartitionInfo, error) {
	const op = "list partitions"
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if keyspace != "" {
		if _, err := c.Keyspace(keyspace).resolve(ctx, op); err != nil {
			return nil, err
		}
	}
	var all []PartitionInfo
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		all = nil
		stream, err := cluster.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{Keyspace: keyspace})
		if err != nil {
			return err
		}
		for {
			p, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := keys.ValidatePartition(p.GetPartition()); err != nil {
				return fmt.Errorf("the server sent a descriptor that makes no sense: %w", err)
			}
			all = append(all, partitionInfo(p))
		}
	})
	if err != nil {
		return nil, wrapAdmin(op, keyspace, err)
	}
	sortPartitions(all)
	return all, nil
}

// Status asks a server how the cluster is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var st Status
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.Status(ctx, &clusterpb.StatusRequest{})
		if err == nil {
			st = statusOf(r)
		}
		return err
	})
	return st, wrapAdmin("status", "", err)
}

// AlterKeyspace changes settings of a keyspace; what no option names stays as it is.
// ErrKeyspaceNotFound if there is none of this name. It may be repeated.
func (c *Client) AlterKeyspace(ctx context.Context, name string, changes ...AlterOption) error {
	const op = "alter keyspace"
	if len(changes) == 0 {
		return invalid(op, name, nil, "nothing is to be changed")
	}
	var s keyspaceSettings
	for _, o := range changes {
		o.alter(&s)
	}
	if s.bad != nil {
		return invalid(op, name, nil, "%v", s.bad)
	}
	request := &clusterpb.AlterKeyspaceRequest{
		Name:              name,
		TxnMaxAgeMillis:   uint64(s.maxAge.Milliseconds()),
		TxnMaxIdleMillis:  uint64(s.maxIdle.Milliseconds()),
		ReplicationFactor: uint32(s.replicas), Placement: s.placement, Leaders: s.leaders,
		SplitSizeBytes: s.splitSize, MergeSizeBytes: s.mergeSize, NoAuto: s.noAuto,
		ClosedTimestampLagMillis: uint64(s.closedLag.Milliseconds()),
		DefaultTtlMillis:         s.defaultTTL,
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(op, name,
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			_, err := cluster.AlterKeyspace(ctx, request)
			return err
		}))
}
