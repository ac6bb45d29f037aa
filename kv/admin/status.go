package admin

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Status is the state of the cluster as one server sees it.
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
	// Leaderless are some of the LeaderlessTotal partitions with a replica on that server that have
	// had no leader for a while, according to the server itself.
	Leaderless      []LeaderlessPartition
	LeaderlessTotal int
}

// LeaderlessPartition is a partition that cannot be read or written.
type LeaderlessPartition struct {
	ID       uint64
	Keyspace string
	// SilentNodes are the nodes with a replica of the partition that do not answer.
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

// Status asks a server for the state of the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	r, err := ask(ctx, c, "status", "", clusterpb.ClusterClient.Status, &clusterpb.StatusRequest{})
	if err != nil {
		return Status{}, err
	}
	return statusOf(r), nil
}
