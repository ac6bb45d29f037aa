package nodes

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxReports limits the number of reports in one heartbeat.
const maxReports = 100_000

// Heartbeat implements Heartbeat of the service Core. It writes nothing as long as the core regards
// the node as alive.
//
// INVARIANT: a node whose heartbeat is answered is alive for the core: its alive key exists, under
// its lease, and its record does not say that the node was displaced.
func (s *Nodes) Heartbeat(
	ctx context.Context, h *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	if err := s.meta.CheckCluster(h.Cluster); err != nil {
		return nil, err
	}
	if len(h.Reports) > maxReports {
		return nil, status.Errorf(codes.InvalidArgument,
			"a heartbeat has at most %d reports, this one has %d", maxReports, len(h.Reports))
	}
	id := keys.NodeID(h.Node)
	l, _ := s.store.Leadership()
	if !l.Serving {
		return nil, s.meta.Refused(l.Leader)
	}
	// The directory of a node never changes, so the record in this member's store is correct even if
	// the store is behind.
	if err := s.checkDirectory(s.store.Stale(), id, h.Server); err != nil {
		return nil, err
	}
	guard, err := s.flag.Heard(ctx, s.store.Stale(), h.Guard)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := authflag.CheckKnows(guard, h.Guard); err != nil {
		return nil, err
	}
	level, err := upgrade.Load(s.store.Stale())
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := s.admit(level, id, h.Levels); err != nil {
		return nil, err
	}
	alive, err := s.keepAlive(ctx, id)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if !alive {
		done, err := s.meta.Turn(ctx)
		if err != nil {
			return nil, err
		}
		err = s.revive(ctx, id)
		done()
		if err != nil {
			return nil, err
		}
		s.config.Poke()
	}
	s.heartbeats.Inc()
	s.flag.NodeSays(ctx, l.Term, id, h.Guard)
	s.config.Upgrade.NodeSays(l.Term, id, h.Levels)
	shares := s.config.Quotas.Heartbeat(id, h.Stats.GetDemands())
	if h.Stats != nil {
		h.Stats.Demands = nil // nobody else asks for them
	}
	wantFull, news := s.reports.Heartbeat(l.Term, h, meta.MaxPartitions, s.config.Monotonic())
	if news {
		s.config.Poke()
	}
	orders, err := s.config.Orders(id)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.HeartbeatResponse{WantFull: wantFull, Orders: orders, Core: s.meta.CoreMembers(),
		LeaseMillis: uint64(meta.NodeLeaseTime.Milliseconds()), Guard: guard, Level: level.State(),
		Shares: shares}, nil
}

// admit refuses a node whose program does not support the level of the cluster.
func (s *Nodes) admit(level upgrade.Record, id keys.NodeID, levels *clusterpb.Levels) error {
	n := &clusterpb.Node{}
	err := level.Admit("", "", levels)
	if err == nil {
		return nil
	}
	// The record of the node has its address and version, which the error names.
	if _, loadErr := meta.Load(s.store.Stale(), meta.NodeKey(id), n); loadErr == nil {
		err = level.Admit(n.Address, n.Version, levels)
	}
	return err
}

// notifyTimeout limits how long the notification of a node may take.
const notifyTimeout = time.Second

// Tell notifies a node, if it is alive, that there are orders for it.
func (s *Nodes) Tell(ctx context.Context, id keys.NodeID) {
	v := s.store.Stale()
	n := &clusterpb.Node{}
	if revision, err := meta.Load(v, meta.NodeKey(id), n); err != nil || revision == 0 {
		return
	}
	if alive, err := v.Get(meta.AliveKey(id)); err != nil || alive == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := s.config.Wake(ctx, n.Address, id); err != nil {
		s.config.Logger.Debug("a node is not told of orders; it asks with its next heartbeat",
			"node", id, "error", err)
	}
}
