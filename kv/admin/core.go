package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// CoreMemberInfo is a member of the consistent core.
type CoreMemberInfo struct {
	// ID is never given out twice.
	ID      uint64
	Address string
	// Role is "voter" or "learner"; while the voters change, "incoming" or "outgoing".
	Role string
	// Leader: it leads the core. Answers: its leader has heard of it lately.
	Leader, Answers bool
	// LeadsCoordination: it leads the coordination store. If none does, that has no leader, as far as
	// the core's leader knows.
	LeadsCoordination bool
	// Behind is how many entries of the log it does not have yet. Snapshot: it is being sent the
	// state.
	Behind   uint64
	Snapshot bool
	// Health is what the member says of itself; nil if it was not asked, did not answer, or runs a
	// version that does not say.
	Health *CoreMemberHealth
}

// CoreMemberHealth is what a member of the consistent core says of itself and of the others.
type CoreMemberHealth struct {
	// NotReady is why its server is not ready, one sentence each; empty if it is.
	NotReady []string
	// Silent are the ids of members of which it hears nothing.
	Silent []uint64
	// CoordinationOpen: its part of the coordination store is open. CoordinationFailed is why that
	// has failed; empty if it has not.
	CoordinationOpen   bool
	CoordinationFailed string
	// Coordination is what it knows of the other members as the leader of the coordination store;
	// nil if it does not lead that.
	Coordination []CoordinationFollower
	// Alarms are those of the coordination store.
	Alarms []CoordinationAlarm
	// DiskSlow: the member's log takes many times longer to sync, LogSync, than the logs of other
	// members. DiskStalled: a write to it has not ended for longer than an election timeout. The
	// member leads nothing meanwhile.
	DiskSlow, DiskStalled bool
	LogSync               time.Duration
}

// CoordinationFollower is a member of the coordination store as its leader sees it.
type CoordinationFollower struct {
	// ID is that of the member of the core. The other fields are as in CoreMemberInfo.
	ID       uint64
	Answers  bool
	Behind   uint64
	Snapshot bool
}

// CoordinationAlarm is an alarm of the coordination store: "NOSPACE", a member has no room and
// nothing is put, or "CORRUPT", members differ and nothing is written.
type CoordinationAlarm struct {
	Type string
	// Server is the id of the member's data directory, as the etcd API shows it.
	Server uint64
}

// CoreCandidate is a server that offers itself as a member of the core.
type CoreCandidate struct{ Address, Version string }

// CoreChange is a change of the core's members that is under way.
type CoreChange struct {
	ID uint64
	// Add is the address of the server that comes, Remove that of the member that goes; empty: none.
	Add, Remove string
	// Step is what is done next, and WaitsFor what that waits for, in words.
	Step, WaitsFor string
	Began          time.Time
}

// Core is the members of the consistent core.
type Core struct {
	Members    []CoreMemberInfo
	Candidates []CoreCandidate
	// Change is nil if nothing is under way.
	Change *CoreChange
}

var coreRoles = map[clusterpb.ReplicaRole]string{
	clusterpb.ReplicaRole_VOTER:    "voter",
	clusterpb.ReplicaRole_LEARNER:  "learner",
	clusterpb.ReplicaRole_INCOMING: "incoming",
	clusterpb.ReplicaRole_OUTGOING: "outgoing",
}

// Core lists the members of the core, and what is under way.
func (c *Client) Core(ctx context.Context) (Core, error) {
	return c.listCore(ctx, &clusterpb.ListCoreRequest{})
}

// CoreHealth is Core, and asks each member that answers how it is, which takes up to two seconds if
// a member does not say.
func (c *Client) CoreHealth(ctx context.Context) (Core, error) {
	return c.listCore(ctx, &clusterpb.ListCoreRequest{Health: true})
}

func (c *Client) listCore(ctx context.Context, request *clusterpb.ListCoreRequest) (Core, error) {
	r, err := ask(ctx, c, "list the members of the core", "", clusterpb.ClusterClient.ListCore,
		request)
	return coreOf(r), err
}

func coreOf(r *clusterpb.ListCoreResponse) (core Core) {
	states := map[uint64]*clusterpb.CoreMemberState{}
	for _, s := range r.GetStates() {
		states[s.Replica] = s
	}
	for _, m := range r.GetMembers().GetMembers() {
		s := states[m.Replica]
		core.Members = append(core.Members, CoreMemberInfo{ID: m.Replica, Address: m.Address,
			Role: coreRoles[m.Role], Leader: s.GetLeader(), Answers: s.GetAnswers(),
			LeadsCoordination: s.GetLeadsCoordination(), Behind: s.GetBehind(),
			Snapshot: s.GetSnapshot(), Health: memberHealth(s.GetHealth())})
	}
	for _, x := range r.GetCandidates() {
		core.Candidates = append(core.Candidates, CoreCandidate{Address: x.Address, Version: x.Version})
	}
	if x := r.GetChange(); x != nil {
		core.Change = &CoreChange{ID: x.Id, Add: x.Add, Remove: x.Remove, Step: x.Step,
			WaitsFor: x.WaitsFor, Began: time.UnixMilli(x.CreatedUnixMs)}
	}
	return core
}

func memberHealth(h *clusterpb.MemberHealth) *CoreMemberHealth {
	if h == nil {
		return nil
	}
	health := &CoreMemberHealth{NotReady: h.NotReady, Silent: h.Silent,
		CoordinationOpen: h.CoordinationOpen, CoordinationFailed: h.CoordinationFailed,
		DiskSlow: h.DiskSlow, DiskStalled: h.DiskStalled,
		LogSync: time.Duration(h.SyncMicros) * time.Microsecond}
	for _, f := range h.CoordinationFollowers {
		health.Coordination = append(health.Coordination, CoordinationFollower{ID: f.Replica,
			Answers: f.Answers, Behind: f.Behind, Snapshot: f.Snapshot})
	}
	for _, a := range h.Alarms {
		health.Alarms = append(health.Alarms, CoordinationAlarm{Type: a.Type, Server: a.Server})
	}
	return health
}

// ChangeCore begins to change the members of the core: the server at the address add, which offers
// itself, becomes a member, and the member remove, an address or an id, goes; one of the two may be
// empty. A learner that is added becomes a voter. It returns when that is recorded, or when it was
// before; Core shows how it goes on. The change goes on by itself, whatever becomes of the caller.
func (c *Client) ChangeCore(ctx context.Context, add, remove string) error {
	return c.changeCore(ctx, &clusterpb.ChangeCoreRequest{Add: add, Remove: remove})
}

// AddCoreLearner begins to make the server at an address, which offers itself, a member of the core
// that has the whole state, and does not vote until ChangeCore adds it. The core has one of these
// at most. It is refused until all members are known to run a version that knows of learners. It
// returns as ChangeCore does.
func (c *Client) AddCoreLearner(ctx context.Context, address string) error {
	return c.changeCore(ctx, &clusterpb.ChangeCoreRequest{Learner: address})
}

func (c *Client) changeCore(ctx context.Context, r *clusterpb.ChangeCoreRequest) error {
	_, err := ask(ctx, c, "change the members of the core", "", clusterpb.ClusterClient.ChangeCore, r)
	return err
}
