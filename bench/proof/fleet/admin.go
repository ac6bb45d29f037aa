package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Admin asks servers about the cluster. Each question uses a connection of its own, because a fault
// test must not depend on connections that survive faults.
type Admin struct{ Cluster *Cluster }

// with calls f with the Cluster service of one server.
func with(ctx context.Context, address string, f func(context.Context,
	clusterpb.ClusterClient) error) error {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(
		insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return f(ctx, clusterpb.NewClusterClient(connection))
}

// any asks one server after the other until a server answers. It repeats this until ctx ends.
func (a *Admin) any(ctx context.Context, what string, f func(context.Context,
	clusterpb.ClusterClient) error) error {
	return process.Until(ctx, what, 100*time.Millisecond, func(ctx context.Context) error {
		var failures []error
		for _, s := range a.Cluster.All() {
			if p := s.Process(); p == nil || !p.Running() {
				continue
			}
			err := with(ctx, s.Address(), f)
			if err == nil {
				return nil
			}
			failures = append(failures, fmt.Errorf("%s: %w", s.Name, err))
		}
		return errors.Join(append(failures, errors.New("no server answered"))...)
	})
}

// CreateKeyspace creates a hash keyspace and waits until the keyspace is active.
func (a *Admin) CreateKeyspace(ctx context.Context, name string, hash, replicas uint32) error {
	request := &clusterpb.CreateKeyspaceRequest{
		Name:              name,
		Partitioning:      clusterpb.Partitioning_HASH,
		HashPartitions:    hash,
		ReplicationFactor: replicas,
		Token:             uint64(time.Now().UnixNano()),
	}
	if err := a.any(ctx, "create keyspace "+name, func(ctx context.Context,
		c clusterpb.ClusterClient) error {
		_, err := c.CreateKeyspace(ctx, request)
		return err
	}); err != nil {
		return err
	}
	return a.any(ctx, "keyspace "+name+" is active and every partition has a leader",
		func(ctx context.Context, c clusterpb.ClusterClient) error {
			list, err := c.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
			if err != nil {
				return err
			}
			for _, k := range list.Keyspaces {
				if k.Keyspace.Name != name {
					continue
				}
				if k.Keyspace.State != clusterpb.KeyspaceState_ACTIVE {
					return fmt.Errorf("keyspace %s is %v: waits for %s", name, k.Keyspace.State,
						k.WaitingFor)
				}
				infos, err := partitions(ctx, c, name)
				if err != nil {
					return err
				}
				return led(infos, int(hash))
			}
			return fmt.Errorf("keyspace %s is not in the list", name)
		})
}

// led returns an error unless all n partitions exist and have a leader.
func led(infos []*clusterpb.PartitionInfo, n int) error {
	if len(infos) != n {
		return fmt.Errorf("%d of %d partitions", len(infos), n)
	}
	for _, info := range infos {
		if info.LeaderNode == 0 {
			return fmt.Errorf("partition %d has no leader", info.Partition.Id)
		}
	}
	return nil
}

func partitions(ctx context.Context, c clusterpb.ClusterClient, keyspace string) (
	[]*clusterpb.PartitionInfo, error) {
	stream, err := c.ListPartitions(ctx, &clusterpb.ListPartitionsRequest{Keyspace: keyspace})
	if err != nil {
		return nil, err
	}
	var infos []*clusterpb.PartitionInfo
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return infos, nil
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
}

// Partitions lists the partitions of a keyspace with their leaders, as one of the running servers
// knows the partitions.
func (a *Admin) Partitions(ctx context.Context, keyspace string) (infos []*clusterpb.PartitionInfo,
	err error) {
	err = a.any(ctx, "partitions of "+keyspace, func(ctx context.Context,
		c clusterpb.ClusterClient) error {
		var err error
		infos, err = partitions(ctx, c, keyspace)
		return err
	})
	return infos, err
}

// NodeOf returns the server of each node id. It finds the server by the address that the node
// registered.
func (a *Admin) NodeOf(ctx context.Context) (map[uint64]*Server, error) {
	servers := make(map[uint64]*Server)
	err := a.any(ctx, "nodes", func(ctx context.Context, c clusterpb.ClusterClient) error {
		list, err := c.ListNodes(ctx, &clusterpb.ListNodesRequest{})
		if err != nil {
			return err
		}
		for _, node := range list.Nodes {
			for _, s := range a.Cluster.All() {
				if s.Address() == node.Address {
					servers[node.Id] = s
				}
			}
		}
		if len(servers) < len(a.Cluster.Nodes) {
			return fmt.Errorf("%d of %d nodes are registered", len(servers), len(a.Cluster.Nodes))
		}
		return nil
	})
	return servers, err
}

// LeaderCounts returns the number of partitions of a keyspace that each server leads.
func (a *Admin) LeaderCounts(ctx context.Context, keyspace string) (map[*Server]int, error) {
	servers, err := a.NodeOf(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := a.Partitions(ctx, keyspace)
	if err != nil {
		return nil, err
	}
	counts := make(map[*Server]int)
	for _, info := range infos {
		if s := servers[info.LeaderNode]; s != nil {
			counts[s]++
		}
	}
	return counts, nil
}

// PartitionKeys returns one key for each of n hash partitions.
func PartitionKeys(n int) []string {
	found := make([]string, n)
	for i, missing := 0, n; missing > 0; i++ {
		key := fmt.Sprintf("probe-%06d", i)
		if at := keys.HashPartition([]byte(key), uint32(n)); found[at] == "" {
			found[at] = key
			missing--
		}
	}
	return found
}
