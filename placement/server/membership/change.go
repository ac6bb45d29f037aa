package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxCore is the maximum number of voters of the core.
const maxCore = 7

// Change records a change of the core's members. The stepper carries it out. Only the leader
// answers. A request that was recorded or done before is answered and not done again.
func (s *Membership) Change(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	if err := soundChange(r); err != nil {
		return nil, err
	}
	if r.Move != "" {
		return s.moveMember(ctx, r)
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	now, revision, err := loadGoal(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	members := s.store.Members()
	g, err := s.goalOf(ctx, r, members, now)
	switch {
	case err != nil:
		return nil, s.meta.Status(err)
	case g == nil:
		return &clusterpb.ChangeCoreResponse{}, nil
	case now != nil && sameGoal(g, now):
		s.core.poke()
		return &clusterpb.ChangeCoreResponse{Change: now.Id}, nil
	case now != nil && !takesBack(g, now, members):
		return nil, status.Errorf(codes.FailedPrecondition, "the members of the core are being "+
			"changed already: %s; wait until that is done, as `tidemark core list` shows, or take the "+
			"newcomer back with `tidemark core remove`", describeGoal(now))
	}
	if err := s.mayBegin(ctx, g, members); err != nil {
		return nil, err
	}
	ids, idsRevision, err := meta.LoadIDs(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	g.Id, g.CreatedUnixMs = ids.Operator, time.Now().UnixMilli()
	ids.Operator++
	answer := &clusterpb.ChangeCoreResponse{Change: g.Id}
	meta.Answer(ctx, answer)
	ok, err := s.meta.Commit(ctx,
		[]*storepb.Compare{store.ModifiedAt([]byte(meta.CoreGoalKey), revision),
			store.ModifiedAt([]byte(meta.IDsKey), idsRevision)},
		store.Put([]byte(meta.CoreGoalKey), meta.Encode(g)),
		store.Put([]byte(meta.IDsKey), meta.Encode(ids)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("the core's members")
	}
	s.config.Logger.Info("a change of the core's members is recorded", "change", g.Id, "what",
		describeGoal(g))
	s.core.setStep(0, roster.Step{})
	s.core.poke()
	return answer, nil
}

// goalOf returns the goal of a request. It returns nil if the goal is reached already.
func (s *Membership) goalOf(ctx context.Context, r *clusterpb.ChangeCoreRequest,
	members *storepb.Members, now *serverpb.CoreGoal) (*serverpb.CoreGoal, error) {
	g := &serverpb.CoreGoal{Learner: r.Learner != ""}
	in, out := (*storepb.Member)(nil), (*storepb.Member)(nil)
	if add := r.Add + r.Learner; add != "" {
		h, err := s.offered(ctx, add, g.Learner)
		if err != nil {
			return nil, err
		}
		in = roster.ByServer(members, h.Server)
		if in == nil {
			if err := s.mayCome(h, add, members); err != nil {
				return nil, err
			}
		}
		g.AddServer, g.AddAddress = h.Server, add
	}
	if r.Remove != "" {
		out = roster.Find(members, r.Remove, g.AddServer)
		gone := roster.Where(&storepb.Members{Members: members.GetRemoved()},
			func(x *storepb.Member) bool { return x.Address == r.Remove })
		switch {
		case out != nil:
			g.RemoveReplica, g.RemoveAddress = out.Replica, out.Address
		case now != nil && now.AddAddress == r.Remove && r.Add == "":
			// The member has not been added yet, and will not be added.
			return &serverpb.CoreGoal{RemoveAddress: r.Remove}, nil
		case gone == nil:
			return nil, unknownMember(r.Remove, members)
		}
	}
	if out == nil && (g.AddServer == 0 || in != nil && (g.Learner ||
		in.Role == storepb.MemberRole_VOTER)) {
		return nil, nil
	}
	return g, nil
}

// offered asks the server at an address for its identity. The server will be added as a voter or a
// learner.
func (s *Membership) offered(
	ctx context.Context, address string, learner bool,
) (*clusterpb.BootstrapHello, error) {
	h, err := s.hello(ctx, address)
	switch {
	case status.Code(err) == codes.Unimplemented || err == nil && s.older(h):
		return nil, status.Errorf(codes.FailedPrecondition, "the server at %s does not offer itself "+
			"as a member of the core: start it with --roles core (or core,node), in this version or a "+
			"later one", address)
	case err == nil && learner && !h.Learners:
		return nil, status.Errorf(codes.FailedPrecondition, "the server at %s runs an older version, "+
			"which knows of no members without a vote: upgrade it first", address)
	case err != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "no server answers at %s: %s; start the "+
			"server first, with the present members as --core, and with --roles core (or core,node)",
			address, wire.Reason(err))
	case h.Address != address:
		return nil, status.Errorf(codes.FailedPrecondition, "the server at %s says that its address "+
			"is %s; name it by that, or start it with --advertise %s", address, h.Address, address)
	}
	return h, nil
}

// mayCome returns an error if a server cannot become a member.
func (s *Membership) mayCome(h *clusterpb.BootstrapHello, address string,
	members *storepb.Members) error {
	removed := roster.ByServer(&storepb.Members{Members: members.GetRemoved()}, h.Server) != nil
	switch {
	case removed || h.Removed:
		return status.Errorf(codes.FailedPrecondition, "the data directory of the server at %s was a "+
			"member of the core and was removed, and its id never comes back: start the server with an "+
			"empty directory", address)
	case h.Accepted != nil && h.Accepted.Cluster != s.meta.Cluster():
		return status.Errorf(codes.FailedPrecondition, "the server at %s belongs to the core of "+
			"cluster %016x, this is cluster %016x", address, h.Accepted.Cluster, s.meta.Cluster())
	case !h.Offers:
		return status.Errorf(codes.FailedPrecondition, "the server at %s does not offer itself as a "+
			"member of this core: it takes part in the forming of a core, or has not found this one "+
			"yet; start it with the present members as --core", address)
	}
	if err := s.supportsLevel(h, address); err != nil {
		return err
	}
	return s.versions.KnowsCommands(h, address)
}

// mayBegin returns an error if a change cannot begin.
func (s *Membership) mayBegin(ctx context.Context, g *serverpb.CoreGoal,
	members *storepb.Members) error {
	if g.AddServer == 0 && g.RemoveReplica == 0 {
		return nil // the request only cancels the recorded change
	}
	if err := s.checkVersions(ctx, members, g.RemoveReplica); err != nil {
		return err
	}
	if g.Learner {
		if err := s.versions.KnowLearners(ctx, members); err != nil {
			return err
		}
	}
	out := roster.ByReplica(members, g.RemoveReplica)
	n := roster.Voters(members)
	votes := out != nil && out.Role == storepb.MemberRole_VOTER
	switch {
	case g.AddServer == 0 && votes && n == 1:
		return refuseCore(clusterpb.CoreRefusal_NO_QUORUM, "%s is the only member of the core, and "+
			"cannot be removed: add another one, or replace it", out.Address)
	case g.Learner && slices.ContainsFunc(members.GetMembers(), roster.IsLearner):
		return refuseCore(clusterpb.CoreRefusal_TOO_MANY_LEARNERS, "the core has a member without a "+
			"vote already: let it vote, or remove it; the members are %s", roster.List(members))
	case g.AddServer != 0 && !g.Learner && !votes && n >= maxCore:
		return status.Errorf(codes.FailedPrecondition,
			"the core has %d members, and can have no more: replace one", n)
	}
	progress := s.progress(ctx)
	l, _ := s.store.Leadership()
	v := &roster.View{Members: members, Leader: uint64(l.Leader),
		Answers: func(id uint64) bool { return s.answersCore(id, progress) },
		Behind:  func(uint64) string { return "" }}
	if g.AddServer == 0 && votes {
		next := proto.Clone(members).(*storepb.Members)
		roster.ByReplica(next, out.Replica).Role = storepb.MemberRole_OUTGOING
		if why := v.Lacks(next); why != "" {
			return refuseCore(clusterpb.CoreRefusal_NO_QUORUM, "without %s the core would have no "+
				"quorum of members that answer: %s; replace it, or bring others back first", out.Address,
				why)
		}
	}
	return nil
}

// checkVersions refuses a change while a member that answers runs a version without changes of
// members. That member would stop at the first entry of the change.
func (s *Membership) checkVersions(
	ctx context.Context, members *storepb.Members, gone uint64,
) error {
	for _, m := range members.GetMembers() {
		if m.Replica == gone || s.config.Peers.Down(m.Replica) {
			continue
		}
		h, err := s.hello(ctx, m.Address)
		if err == nil && s.older(h) {
			return status.Errorf(codes.FailedPrecondition, "the member of the core at %s runs an older "+
				"version, which does not know of changed members, or of the coordination store: upgrade "+
				"all members first", m.Address)
		}
	}
	return nil
}

// older reports whether a server runs a version that lacks abilities which members need.
func (s *Membership) older(h *clusterpb.BootstrapHello) bool {
	return !h.Changes || !h.Coordination && s.coordinationFounded()
}

func sameGoal(a, b *serverpb.CoreGoal) bool {
	return a.AddServer == b.AddServer && a.RemoveReplica == b.RemoveReplica &&
		a.Learner == b.Learner && (a.AddServer != 0 || a.RemoveReplica != 0)
}

// takesBack reports whether a goal removes the member that the present goal adds.
func takesBack(g, now *serverpb.CoreGoal, members *storepb.Members) bool {
	if g.AddServer != 0 || now.AddServer == 0 {
		return false
	}
	in := roster.ByServer(members, now.AddServer)
	return in == nil && g.RemoveReplica == 0 || in != nil && in.Replica == g.RemoveReplica
}

// describeGoal describes a goal in words.
func describeGoal(g *serverpb.CoreGoal) string {
	switch {
	case g.AddServer != 0 && g.RemoveReplica != 0:
		return fmt.Sprintf("%s comes in place of member %d at %s", g.AddAddress, g.RemoveReplica,
			g.RemoveAddress)
	case g.Learner:
		return g.AddAddress + " is added without a vote"
	case g.AddServer != 0:
		return g.AddAddress + " is added"
	}
	return g.RemoveAddress + " is removed"
}

// List lists the members as the leader knows them, and the change that is under way.
func (s *Membership) List(
	ctx context.Context, request *clusterpb.ListCoreRequest,
) (*clusterpb.ListCoreResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	g, _, err := loadGoal(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	l, _ := s.store.Leadership()
	var coordinator keys.ReplicaID
	if part := s.coordination.part.Load(); part != nil {
		second, _ := part.Store.Leadership()
		coordinator = second.Leader
	}
	members := s.store.Members()
	followers := s.followersOf(ctx, s.config.Group)
	r := &clusterpb.ListCoreResponse{Members: s.meta.CoreMembers(),
		Removed: meta.PublicMembers(members.GetRemoved()),
		Candidates: s.core.offering(func(server uint64) bool {
			return roster.ByServer(members, server) != nil ||
				roster.ByServer(&storepb.Members{Members: members.GetRemoved()}, server) != nil
		})}
	for _, m := range r.Members.Members {
		state := &clusterpb.CoreMemberState{Replica: m.Replica,
			Leader:            keys.ReplicaID(m.Replica) == l.Leader,
			LeadsCoordination: keys.ReplicaID(m.Replica) == coordinator}
		if f, ok := followers[keys.ReplicaID(m.Replica)]; ok {
			state.Answers, state.Behind, state.Snapshot = f.Answers, f.Behind, f.Snapshot
		}
		state.Answers = state.Answers || state.Leader
		r.States = append(r.States, state)
	}
	if request.Health {
		s.checkMembers(ctx, r.Members.Members, r.States)
	}
	if g != nil {
		step := s.core.lastStep()
		r.Change = &clusterpb.CoreChange{Id: g.Id, Add: g.AddAddress, Remove: g.RemoveAddress,
			RemoveReplica: g.RemoveReplica, CreatedUnixMs: g.CreatedUnixMs, Step: step.Text,
			WaitsFor: step.Waits}
	}
	return r, nil
}
