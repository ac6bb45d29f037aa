package fakeserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Status implements clusterpb.ClusterServer.
func (n *Node) Status(context.Context, *clusterpb.StatusRequest) (*clusterpb.StatusResponse,
	error) {
	c := n.cluster
	return &clusterpb.StatusResponse{Cluster: clusterID, Node: n.ID, Core: true, Ready: true,
		Version: "fake", CoreLeader: c.Nodes[1].Address,
		Members: []*clusterpb.CoreMember{{Address: c.Nodes[1].Address, Replica: 1}}}, nil
}

func (c *Cluster) tableLocked() *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Revision: c.revision, Complete: true, Cluster: clusterID}
	for _, n := range c.Nodes {
		u.Nodes = append(u.Nodes, &clusterpb.Node{Id: n.ID, Address: n.Address, Alive: true,
			Locality: n.locality()})
	}
	for _, k := range c.Keyspaces {
		u.Keyspaces = append(u.Keyspaces, cloned(k))
	}
	for _, p := range c.Partitions {
		u.Partitions = append(u.Partitions, p.Desc)
		if !c.NoLeaders {
			u.Leaders = append(u.Leaders, &clusterpb.Leader{Partition: p.Desc.Id, Node: p.Leader,
				Term: p.Term})
		}
	}
	return u
}

// WatchTable implements clusterpb.ClusterServer.
func (n *Node) WatchTable(_ *clusterpb.WatchTableRequest,
	stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	c := n.cluster
	shown := make(map[uint32]bool)
	for {
		c.mu.Lock()
		u, changed := c.tableLocked(), c.changed
		for id := range shown {
			if c.Keyspaces[id] == nil {
				u.RemovedKeyspaces = append(u.RemovedKeyspaces, id)
				delete(shown, id)
			}
		}
		for id := range c.Keyspaces {
			shown[id] = true
		}
		c.mu.Unlock()
		if err := stream.Send(u); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// ListNodes implements clusterpb.ClusterServer.
func (n *Node) ListNodes(context.Context, *clusterpb.ListNodesRequest) (
	*clusterpb.ListNodesResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return &clusterpb.ListNodesResponse{Nodes: c.tableLocked().Nodes}, nil
}

// CreateKeyspace implements clusterpb.ClusterServer.
func (n *Node) CreateKeyspace(_ context.Context, r *clusterpb.CreateKeyspaceRequest) (
	*clusterpb.CreateKeyspaceResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.Keyspaces {
		if k.Name == r.Name {
			return nil, status.Errorf(codes.AlreadyExists, "keyspace %q exists", r.Name)
		}
	}
	if int(r.ReplicationFactor) > len(c.Nodes) {
		return nil, status.Errorf(codes.InvalidArgument,
			"%d replicas need as many nodes, there are %d", r.ReplicationFactor, len(c.Nodes))
	}
	k := c.addKeyspaceLocked(r)
	if c.Created != nil {
		c.Created(k)
	}
	c.TellLocked()
	return &clusterpb.CreateKeyspaceResponse{Keyspace: cloned(k)}, nil
}

// DropKeyspace implements clusterpb.ClusterServer.
func (n *Node) DropKeyspace(_ context.Context, r *clusterpb.DropKeyspaceRequest) (
	*clusterpb.DropKeyspaceResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, k := range c.Keyspaces {
		if k.Name == r.Name {
			delete(c.Keyspaces, id)
			for pid, p := range c.Partitions {
				if p.Desc.Keyspace == id {
					delete(c.Partitions, pid)
				}
			}
			c.TellLocked()
			return &clusterpb.DropKeyspaceResponse{}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no keyspace %q", r.Name)
}

// ListKeyspaces implements clusterpb.ClusterServer.
func (n *Node) ListKeyspaces(context.Context, *clusterpb.ListKeyspacesRequest) (
	*clusterpb.ListKeyspacesResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &clusterpb.ListKeyspacesResponse{}
	for _, k := range c.Keyspaces {
		r.Keyspaces = append(r.Keyspaces, &clusterpb.KeyspaceInfo{Keyspace: cloned(k),
			WaitingFor: c.WaitingFor})
	}
	return r, nil
}

// ListPartitions implements clusterpb.ClusterServer.
func (n *Node) ListPartitions(r *clusterpb.ListPartitionsRequest,
	stream grpc.ServerStreamingServer[clusterpb.PartitionInfo]) error {
	c := n.cluster
	c.mu.Lock()
	var all []*clusterpb.PartitionInfo
	for _, p := range c.Partitions {
		k := c.Keyspaces[p.Desc.Keyspace]
		if r.Keyspace == "" || k.Name == r.Keyspace {
			all = append(all, &clusterpb.PartitionInfo{Partition: p.Desc, Keyspace: k.Name,
				LeaderNode: p.Leader, Term: p.Term})
		}
	}
	c.mu.Unlock()
	for _, p := range all {
		if err := stream.Send(p); err != nil {
			return err
		}
	}
	return nil
}
