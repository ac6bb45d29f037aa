package server

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ListNodes lists the nodes, as the leader knows them.
func (s *Server) ListNodes(
	ctx context.Context, _ *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	s.reports.AddReports(nodes)
	return &clusterpb.ListNodesResponse{Nodes: nodes, Members: s.meta.Members(),
		CoreLeader: s.meta.LeaderAddress(), NowUnixMs: time.Now().UnixMilli()}, nil
}

// ListKeyspaces lists the keyspaces. For keyspaces that are not ready, it says what they wait for.
func (s *Server) ListKeyspaces(
	ctx context.Context, _ *clusterpb.ListKeyspacesRequest,
) (*clusterpb.ListKeyspacesResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	all, err := meta.LoadKeyspaces(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	response := &clusterpb.ListKeyspacesResponse{}
	for _, ks := range all {
		info := &clusterpb.KeyspaceInfo{Keyspace: ks.Keyspace, Usage: s.quotas.Usage(ks.ID())}
		if info.Partitions, err = meta.Count(v, string(meta.PartitionsOf(ks.ID()))); err != nil {
			return nil, s.meta.Status(err)
		}
		if ks.State == clusterpb.KeyspaceState_CREATING {
			spec, err := facts.Spec(ks.Keyspace)
			if err != nil {
				return nil, s.meta.Status(err)
			}
			if info.WaitingFor = spec.Waits(facts.Nodes(nodes)); info.WaitingFor == "" {
				info.WaitingFor = "its partitions, which are being made"
			}
		}
		response.Keyspaces = append(response.Keyspaces, info)
	}
	return response, nil
}

// ListPartitions lists the partitions of one keyspace, or of all, with their state from reports.
func (s *Server) ListPartitions(
	ctx context.Context, r *clusterpb.ListPartitionsRequest,
	send func(*clusterpb.PartitionInfo) error,
) error {
	v, err := s.meta.View(ctx)
	if err != nil {
		return err
	}
	names := map[uint32]string{}
	prefix := []byte(meta.PartitionPrefix)
	if r.Keyspace != "" {
		ks, err := s.meta.KeyspaceByName(v, r.Keyspace)
		if err != nil {
			return err
		}
		names[ks.Id] = ks.Name
		prefix = meta.PartitionsOf(ks.ID())
	} else {
		all, err := meta.LoadKeyspaces(v)
		if err != nil {
			return s.meta.Status(err)
		}
		for _, ks := range all {
			names[ks.Id] = ks.Name
		}
	}
	sees := veil.SightOf(ctx)
	for p, err := range meta.All[clusterpb.Partition](v, prefix) {
		if err != nil {
			return s.meta.Status(err)
		}
		info := &clusterpb.PartitionInfo{Partition: p, Keyspace: names[p.Keyspace]}
		s.reports.Describe(info)
		sees.Partition(info)
		if err := send(info); err != nil {
			return err
		}
	}
	return nil
}

// defaultEvents is the number of events in a response to a request without a limit.
const defaultEvents = 1000

// ListEvents lists the events of placement, the newest first.
func (s *Server) ListEvents(
	ctx context.Context, r *clusterpb.ListEventsRequest,
) (*clusterpb.ListEventsResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	limit := int(r.Limit)
	if limit == 0 {
		limit = defaultEvents
	}
	sees := veil.SightOf(ctx)
	out := &clusterpb.ListEventsResponse{}
	err = meta.EventsBackwards(v, func(e *clusterpb.Event) bool {
		if r.Partition != 0 && e.Partition != r.Partition && e.Child != r.Partition &&
			e.Right != r.Partition || r.Node != 0 && e.ToNode != r.Node &&
			e.FromNode != r.Node && e.LeadNode != r.Node {
			return true
		}
		sees.Event(e)
		out.Events = append(out.Events, e)
		return len(out.Events) < limit
	})
	if err != nil {
		return nil, s.meta.Status(err)
	}
	return out, nil
}

// WatchMetadata implements clusterpb.CoreServer. Any member answers, as long as it has a leader.
func (s *Server) WatchMetadata(
	r *clusterpb.WatchMetadataRequest, stream clusterpb.Core_WatchMetadataServer,
) error {
	// A receiver that does not give its cluster checks the updates itself: they name the cluster.
	if r.Cluster != 0 {
		if err := s.meta.CheckCluster(r.Cluster); err != nil {
			return err
		}
	}
	if r.Node != 0 {
		// A member that lags may not know a new node yet, so the node id is not checked here. Heartbeats
		// reveal a wrong node id.
		s.config.Logger.Debug("metadata stream", "node", keys.NodeID(r.Node), "after", r.AfterRevision)
	}
	return s.table.Send(stream.Context(), r.AfterRevision, stream.Send)
}
