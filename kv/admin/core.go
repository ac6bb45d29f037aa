package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// CoreMemberInfo is a member of the consistent core.
type CoreMemberInfo struct {
	// ID is the id of the member. No id is given out twice.
	ID      uint64
	Address string
	// Role is "voter" or "learner"; while the voters change, "incoming" or "outgoing".
	Role string
	// Leader: the member leads the core. Answers: the core's leader has lately heard from the
	// member.
	Leader, Answers bool
	// LeadsCoordination: the member leads the coordination store. If no member has it set, the
	// store has no leader that the core's leader knows.
	LeadsCoordination bool
	// Behind is the number of log entries that the member still lacks. Snapshot: a snapshot is being
	// sent to the member.
	Behind   uint64
	Snapshot bool
	// Health is the member's report about itself; nil if the member was not asked, did not answer,
	// or runs a version without such reports.
	Health *CoreMemberHealth
}

// CoreMemberHealth is the report of a member of the consistent core about itself and the others.
type CoreMemberHealth struct {
	// NotReady has the reasons why the member's server is not ready, one sentence each. It is empty if
	// the server is ready.
	NotReady []string
	// Silent are the ids of the members that the member does not hear.
	Silent []uint64
	// CoordinationOpen: the member's part of the coordination store is open. CoordinationFailed is
	// the reason why that part has failed; empty if it has not.
	CoordinationOpen   bool
	CoordinationFailed string
	// Coordination is the progress of the other members as the leader of the coordination store
	// sees it; nil if the member does not lead the store.
	Coordination []CoordinationFollower
	// Alarms are the alarms of the coordination store.
	Alarms []CoordinationAlarm
	// DiskSlow: a sync of the member's log (LogSync) takes many times longer than at other members.
	// DiskStalled: a write to the log has been under way for longer than an election timeout. The
	// member leads nothing meanwhile.
	DiskSlow, DiskStalled bool
	LogSync               time.Duration
	// ProcessorWait and RoundTrips are as in NodeInfo; RoundTrips are by member.
	ProcessorWait time.Duration
	RoundTrips    map[uint64]time.Duration
}

// CoordinationFollower is a member of the coordination store as its leader sees it.
type CoordinationFollower struct {
	// ID is the id of the member of the core. The other fields have the same meanings as in
	// CoreMemberInfo.
	ID       uint64
	Answers  bool
	Behind   uint64
	Snapshot bool
}

// CoordinationAlarm is an alarm of the coordination store: "NOSPACE" (a member has no disk space,
// and puts are refused) or "CORRUPT" (the data of members differs, and nothing is written).
type CoordinationAlarm struct {
	Type string
	// Server is the id of the member's data directory, as the etcd API shows it.
	Server uint64
}

// CoreCandidate is a server that offers itself as a member of the core.
type CoreCandidate struct{ Address, Version string }

// CoreChange is a change of the core's members under way.
type CoreChange struct {
	ID uint64
	// Add is the address of the server to be added, Remove the address of the member to be removed;
	// empty: none.
	Add, Remove string
	// Step is the next step of the change, and WaitsFor what the step waits for, both as text.
	Step, WaitsFor string
	Began          time.Time
}

// Core describes the consistent core.
type Core struct {
	Members    []CoreMemberInfo
	Candidates []CoreCandidate
	// Change is the change under way; nil if there is none.
	Change *CoreChange
}

var coreRoles = map[clusterpb.ReplicaRole]string{
	clusterpb.ReplicaRole_VOTER:    "voter",
	clusterpb.ReplicaRole_LEARNER:  "learner",
	clusterpb.ReplicaRole_INCOMING: "incoming",
	clusterpb.ReplicaRole_OUTGOING: "outgoing",
}

// Core lists the members of the core and the change under way.
func (c *Client) Core(ctx context.Context) (Core, error) {
	return c.listCore(ctx, &clusterpb.ListCoreRequest{})
}

// CoreHealth does the same as Core, and also asks each member that answers for its health. The call
// takes up to two seconds if a member does not answer.
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
		LogSync: micros(h.SyncMicros), ProcessorWait: micros(h.ProcessorWaitMicros),
		RoundTrips: roundTrips(h.RoundTrips)}
	for _, f := range h.CoordinationFollowers {
		health.Coordination = append(health.Coordination, CoordinationFollower{ID: f.Replica,
			Answers: f.Answers, Behind: f.Behind, Snapshot: f.Snapshot})
	}
	for _, a := range h.Alarms {
		health.Alarms = append(health.Alarms, CoordinationAlarm{Type: a.Type, Server: a.Server})
	}
	return health
}

// ChangeCore begins a change of the core's members: the server at the address add, which offers
// itself, becomes a member, and the member remove (an address or an id) is removed. One of the two
// may be empty. If add is a learner, it becomes a voter. ChangeCore returns when the change is
// recorded, also if it was recorded before. The change goes on whatever happens to the caller; Core
// shows its progress.
func (c *Client) ChangeCore(ctx context.Context, add, remove string) error {
	return c.changeCore(ctx, &clusterpb.ChangeCoreRequest{Add: add, Remove: remove})
}

// AddCoreLearner begins to add the server at an address, which offers itself, to the core as a
// learner: a member that has the whole state but does not vote until ChangeCore adds it. The core
// has at most one learner. The call is refused until all members are known to run a version that
// supports learners. It returns as ChangeCore does.
func (c *Client) AddCoreLearner(ctx context.Context, address string) error {
	return c.changeCore(ctx, &clusterpb.ChangeCoreRequest{Learner: address})
}

func (c *Client) changeCore(ctx context.Context, r *clusterpb.ChangeCoreRequest) error {
	_, err := ask(ctx, c, "change the members of the core", "", clusterpb.ClusterClient.ChangeCore, r)
	return err
}
