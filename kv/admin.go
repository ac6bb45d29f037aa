package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// DefaultHashPartitions is how many partitions a keyspace gets if neither Hash nor Range is given.
const DefaultHashPartitions = 32

// KeyspaceOption configures a new keyspace.
type KeyspaceOption func(*clusterpb.CreateKeyspaceRequest) error

// Hash spreads the keys over n partitions (1 to 16384) by their hash: even load, whatever the keys; scans visit all partitions.
// n never changes.
func Hash(n int) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) error {
		if n < 1 || n > keys.MaxHashPartitions {
			return fmt.Errorf("hash:%d: a hash keyspace has 1 to %d partitions", n, keys.MaxHashPartitions)
		}
		r.Partitioning, r.HashPartitions, r.SplitAt = clusterpb.Partitioning_HASH, uint32(n), nil
		return nil
	}
}

// Range keeps the keys in order: scans of neighbouring keys visit few partitions. The keyspace begins with one partition, or is
// split at the given keys, which must be ascending; each is the first key of its partition.
func Range(splitAt ...[]byte) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) error {
		for i, key := range splitAt {
			if err := keys.ValidateUserKey(key); err != nil {
				return fmt.Errorf("split point %d: %v", i+1, err)
			}
			if i > 0 && bytes.Compare(splitAt[i-1], key) >= 0 {
				return fmt.Errorf("split points must be ascending, without repeats: %s comes before %s",
					keys.Pretty(splitAt[i-1]), keys.Pretty(key))
			}
		}
		r.Partitioning, r.HashPartitions, r.SplitAt = clusterpb.Partitioning_RANGE, 0, splitAt
		return nil
	}
}

// Replicas is how many copies there are, on as many nodes: 1, 3 or 5. The cluster's default is 3.
func Replicas(n int) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) error {
		if n != 1 && n != 3 && n != 5 {
			return fmt.Errorf("%d replicas: a keyspace has 1, 3 or 5", n)
		}
		r.ReplicationFactor = uint32(n)
		return nil
	}
}

// GCWindow is for how long earlier versions can be read, in whole seconds; the cluster's default is an hour.
func GCWindow(d time.Duration) KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) error {
		if d < time.Second {
			return fmt.Errorf("a GC window of %s: it has at least one second", d)
		}
		r.GcWindowSeconds = uint64(d / time.Second)
		return nil
	}
}

// CommitWait makes every write to the keyspace, also a single one such as Put, be acknowledged and seen only when every clock of the cluster
// has passed its timestamp: what WithCommitWait does for one transaction. A transaction that writes to other keyspaces too waits as a whole.
// If all keyspaces that clients use together have it, what they do is strictly serialisable. It cannot be changed later.
func CommitWait() KeyspaceOption {
	return func(r *clusterpb.CreateKeyspaceRequest) error {
		r.CommitWait = true
		return nil
	}
}

// CreateKeyspace creates a keyspace and returns when it can be used. ErrKeyspaceExists if there is one of this name, even with the same
// settings. If ctx ends first, the keyspace exists and goes on being set up, and the error says what is missing; nodes, for example.
// A context without a deadline is bounded by the request timeout from one partition that is made to
// the next, not as a whole: thousands of partitions take their time. CreateKeyspaceIfMissing goes
// on waiting for one that is being set up.
func (c *Client) CreateKeyspace(ctx context.Context, name string, options ...KeyspaceOption) (*Keyspace, error) {
	const op = "create keyspace"
	request := &clusterpb.CreateKeyspaceRequest{Name: name, Partitioning: clusterpb.Partitioning_HASH, HashPartitions: DefaultHashPartitions}
	if name == "" {
		return nil, invalid(op, "", nil, "a keyspace needs a name")
	}
	for _, o := range options {
		if err := o(request); err != nil {
			return nil, invalid(op, name, nil, "%v", err)
		}
	}
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

// DropKeyspace deletes a keyspace with everything in it, for good. ErrKeyspaceNotFound if there is none of this name.
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
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var all []KeyspaceInfo
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
		all = nil
		for _, info := range r.GetKeyspaces() {
			all = append(all, keyspaceInfo(info, c.sender.Table()))
		}
		return err
	})
	return all, wrapAdmin("list keyspaces", "", err)
}

// Describe returns what the cluster knows about the keyspace.
func (k *Keyspace) Describe(ctx context.Context) (KeyspaceInfo, error) {
	const op = "describe keyspace"
	all, err := k.client.Keyspaces(ctx)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Op, e.Keyspace = op, k.name
		}
		return KeyspaceInfo{}, err
	}
	for _, info := range all {
		if info.Name == k.name {
			return info, nil
		}
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
			all = append(all, nodeInfo(n))
		}
		return err
	})
	return all, wrapAdmin("list nodes", "", err)
}

// Partitions lists the partitions of a keyspace in key order, or with an empty name those of all keyspaces.
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
