package server

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ListNodes lists the nodes, as the leader knows them.
func (s *Server) ListNodes(
	ctx context.Context, _ *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := loadNodes(v)
	if err != nil {
		return nil, s.toStatus(err)
	}
	s.soft.addReports(nodes)
	return &clusterpb.ListNodesResponse{Nodes: nodes, Members: s.Members(),
		CoreLeader: s.LeaderAddress(), NowUnixMs: time.Now().UnixMilli()}, nil
}

// ListKeyspaces lists the keyspaces, and what those wait for that are not ready.
func (s *Server) ListKeyspaces(
	ctx context.Context, _ *clusterpb.ListKeyspacesRequest,
) (*clusterpb.ListKeyspacesResponse, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	all, err := loadKeyspaces(v)
	if err != nil {
		return nil, s.toStatus(err)
	}
	nodes, err := loadNodes(v)
	if err != nil {
		return nil, s.toStatus(err)
	}
	response := &clusterpb.ListKeyspacesResponse{}
	for _, ks := range all {
		info := &clusterpb.KeyspaceInfo{Keyspace: ks.Keyspace}
		if info.Partitions, err = count(v, string(partitionsOf(ks.id()))); err != nil {
			return nil, s.toStatus(err)
		}
		if ks.State == clusterpb.KeyspaceState_CREATING {
			spec, err := specOf(ks.Keyspace)
			if err != nil {
				return nil, s.toStatus(err)
			}
			if info.WaitingFor = spec.Waits(candidates(nodes)); info.WaitingFor == "" {
				info.WaitingFor = "its partitions, which are being made"
			}
		}
		response.Keyspaces = append(response.Keyspaces, info)
	}
	return response, nil
}

// ListPartitions lists the partitions of one keyspace, or of all, with what is known of them at run
// time.
func (s *Server) ListPartitions(
	ctx context.Context, r *clusterpb.ListPartitionsRequest,
	send func(*clusterpb.PartitionInfo) error,
) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	names := map[uint32]string{}
	prefix := []byte(partitionPrefix)
	if r.Keyspace != "" {
		ks, err := s.keyspaceByName(v, r.Keyspace)
		if err != nil {
			return err
		}
		names[ks.Id] = ks.Name
		prefix = partitionsOf(ks.id())
	} else {
		all, err := loadKeyspaces(v)
		if err != nil {
			return s.toStatus(err)
		}
		for _, ks := range all {
			names[ks.Id] = ks.Name
		}
	}
	sees := sightOf(ctx)
	for kv, err := range v.All(prefix) {
		if err != nil {
			return s.toStatus(err)
		}
		p, err := decodePartition(kv.Key, kv.Value)
		if err != nil {
			return s.toStatus(err)
		}
		info := &clusterpb.PartitionInfo{Partition: p, Keyspace: names[p.Keyspace]}
		s.soft.describe(info)
		sees.partition(info)
		if err := send(info); err != nil {
			return err
		}
	}
	return nil
}
