package membership

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Announce implements clusterpb.CoreServer. A server that is not a member offers itself, and learns
// from the answer when it has become a member. A member reports its address, and learns when it is
// no longer a member. Only the leader answers.
func (s *Membership) Announce(
	ctx context.Context, r *clusterpb.AnnounceRequest,
) (*clusterpb.AnnounceResponse, error) {
	if r.Server == 0 || r.Address == "" {
		return nil, status.Error(codes.InvalidArgument, "a server that has no id or no address")
	}
	if r.Cluster != 0 {
		if err := s.meta.CheckCluster(r.Cluster); err != nil {
			return nil, err
		}
	}
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	level, err := upgrade.Load(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := level.Admit(r.Address, r.Version, r.Levels); err != nil {
		return nil, err
	}
	members := s.store.Members()
	m := roster.ByServer(members, r.Server)
	if m != nil && m.Address != r.Address {
		if err := s.moved(ctx, m.Replica, r); err != nil {
			return nil, err
		}
		members = s.store.Members()
		m = roster.ByServer(members, r.Server)
	}
	report := r.Guard
	if m == nil {
		report = nil // reports of servers that are not members change nothing
	}
	guard, err := s.flag.Heard(ctx, v, report)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	response := &clusterpb.AnnounceResponse{Cluster: s.meta.Cluster(), Members: s.meta.CoreMembers(),
		Guard: guard, Level: level.State()}
	switch {
	case m != nil:
		response.Replica = m.Replica
		if l, _ := s.store.Leadership(); l.Serving {
			s.flag.MemberSays(ctx, l.Term, r.Server, r.Guard)
			s.config.Upgrade.MemberSays(l.Term, r.Server, r.Version, r.Levels)
		}
	case roster.ByServer(&storepb.Members{Members: members.GetRemoved()}, r.Server) != nil:
		// The member's part of the coordination store goes with the member. So the coordination store
		// must remove the member first.
		if response.Leaving, err = s.coordinationHas(v, members, r.Server); err != nil {
			return nil, s.meta.Status(err)
		}
		response.Removed = !response.Leaving
	default:
		s.core.offer(r)
	}
	return response, nil
}

// moved records the new address of a member. The data directory may have been copied: as long as a
// server with this directory answers at the old address, the recorded address stays.
func (s *Membership) moved(
	ctx context.Context, replica uint64, r *clusterpb.AnnounceRequest,
) error {
	done, err := s.meta.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.recordMove(ctx, replica, r)
}

// recordMove does the work of moved. The caller has the turn.
func (s *Membership) recordMove(
	ctx context.Context, replica uint64, r *clusterpb.AnnounceRequest,
) error {
	members := s.store.Members()
	m := roster.ByReplica(members, replica)
	if m == nil || m.Address == r.Address {
		return nil
	}
	h, err := s.hello(ctx, m.Address)
	if err == nil && h.Server == r.Server && h.Address == m.Address {
		return status.Errorf(codes.FailedPrecondition, "member %d of the core answers at %s, so the "+
			"server at %s, which has the same data directory or a copy of it, cannot take its place: "+
			"stop one of the two", replica, m.Address, r.Address)
	}
	if err := s.checkVersions(ctx, members, replica); err != nil {
		return err
	}
	next := proto.Clone(members).(*storepb.Members)
	next.Version++
	roster.ByReplica(next, replica).Address = r.Address
	if _, err := s.store.Do(ctx, store.ChangeMembers(next)); err != nil {
		return s.meta.Status(err)
	}
	s.config.Logger.Info("a member of the core has moved", "member", replica, "from", m.Address, "to",
		r.Address)
	return nil
}
