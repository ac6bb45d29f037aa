package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Users and roles lie in the coordination store, and guard the data on nodes that may be cut off
// from it. A node that has to follow them answers clients only as long as it hears of them (package
// guard); in a cluster without users no node may depend on that. So whether nodes have to follow is
// a record of its own, in the core's own store, which each server keeps a copy of on its disk:
//
//   - Its version counts its changes. A server takes a newer version, and never an older one.
//   - A node that registers says whether it knows of the record. It is told of it with its id, and
//     is recorded only if the record is still that. While it is on, a node that does not know of
//     it is refused, as it is with heartbeats; one that was recorded before is in the way of
//     enabling.
//   - Authentication is enabled after the record was put on, and every node that is not
//     decommissioned has said, to this leader or the one that records it, that its copy is.
//   - It is put off after authentication is disabled, in two steps: it becomes a new version that
//     is ending, and goes off if authentication is seen to be disabled after that, and the record
//     has not been put on again since. Authentication is not enabled under a version that is
//     ending.
//   - A mark that the record cannot have come to is one of a core whose end the present one does
//     not know (guarding_recovered.go). The record gets a later version then, and is on if either
//     is.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, every node that may hold
// data has a copy that is on. So each of them follows, also after a crash.

// loadGuard reads the record, and the revision at which it was written; 0 if there is none.
func loadGuard(v *store.View) (*clusterpb.GuardState, uint64, error) {
	g := &clusterpb.GuardState{}
	revision, err := meta.Load(v, []byte(meta.GuardKey), g)
	return g, revision, err
}

// proves says why a caller has not proved to be a server.
func (s *Server) proves(ctx context.Context) error {
	if s.config.Proves == nil {
		return nil
	}
	return s.config.Proves(ctx)
}

// Guarding implements clusterpb.CoreServer. Only the leader does it.
func (s *Server) Guarding(
	ctx context.Context, r *clusterpb.GuardingRequest,
) (*clusterpb.GuardingResponse, error) {
	if err := s.meta.CheckCluster(r.Cluster); err != nil {
		return nil, err
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	guard, revision, err := loadGuard(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	change := false
	var ops []*storepb.Op
	switch r.Do {
	case clusterpb.GuardingRequest_SHOW:
	case clusterpb.GuardingRequest_BEGIN:
		guard.Version, guard.On, guard.Ending, change = guard.Version+1, true, false, true
	case clusterpb.GuardingRequest_END:
		if change = guard.On && guard.Version == r.Version; change {
			guard.Version, guard.On, guard.Ending = guard.Version+1, !guard.Ending, !guard.Ending
			if !guard.On {
				ops = append(ops, store.Delete([]byte(meta.RecoveredKey)))
			}
		}
	default:
		return nil, status.Errorf(codes.InvalidArgument, "this version does not know how to do %d",
			r.Do)
	}
	if change {
		ok, err := s.meta.Commit(ctx,
			[]*storepb.Compare{store.ModifiedAt([]byte(meta.GuardKey), revision)},
			append(ops, store.Put([]byte(meta.GuardKey), meta.Encode(guard)))...)
		if err == nil && !ok {
			err = meta.Conflict("whether servers follow users and roles")
		}
		if err != nil {
			return nil, err
		}
		s.config.Logger.Info("whether servers follow users and roles has changed", "follow", guard.On,
			"ending", guard.Ending, "version", guard.Version)
	}
	return s.unguarded(ctx, v, guard)
}

// unguarded lists the servers that keep authentication from being enabled.
func (s *Server) unguarded(
	ctx context.Context, v *store.View, guard *clusterpb.GuardState,
) (*clusterpb.GuardingResponse, error) {
	response := &clusterpb.GuardingResponse{Guard: guard}
	add := func(node keys.NodeID, address string, report *guardReport) {
		open, behind := report.lacks(guard)
		if open != "" {
			response.Open = append(response.Open, &clusterpb.UnguardedServer{Node: uint64(node),
				Address: address, Reason: open})
		}
		if behind != "" {
			response.Behind = append(response.Behind, &clusterpb.UnguardedServer{Node: uint64(node),
				Address: address, Reason: behind})
		}
		if behind != "" && node != 0 {
			s.reports.WakeNode(node)
		}
	}
	for kv, err := range v.All([]byte(meta.NodePrefix)) {
		if err != nil {
			return nil, s.meta.Status(err)
		}
		var n clusterpb.Node
		if err := n.UnmarshalVT(kv.Value); err != nil {
			return nil, s.meta.Status(meta.Malformed(kv.Key, err))
		}
		if n.Status != clusterpb.NodeStatus_NODE_GONE {
			add(keys.NodeID(n.Id), n.Address, s.guards.ofNode(keys.NodeID(n.Id)))
		}
	}
	for _, m := range s.store.Members().GetMembers() {
		add(0, m.Address, s.guards.ofMember(m.Server))
	}
	return response, ctx.Err()
}
