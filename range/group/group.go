package group

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Config configures a Group. Zero fields take the defaults given.
type Config struct {
	ID      keys.PartitionID
	Self    keys.ReplicaID
	Storage raft.Storage
	// Configuration is the state machine's, as of Applied, and what Storage says. Empty: it is made
	// of what Storage says.
	Configuration Configuration
	// Applied is the state machine's applied index.
	Applied uint64
	// ElectionTicks is how long a follower waits for its leader: a random number between this and
	// twice this. Default 10.
	ElectionTicks int
	// LeaseDuration is how long a quorum's answer is good for, from the sending of the question. It
	// must be less than ElectionTicks-1 tick intervals by the margin for clock drift.
	LeaseDuration time.Duration
	// PromiseDuration is how long a replica that has answered a heartbeat neither votes nor
	// campaigns: LeaseDuration and the margin for clock drift. Default LeaseDuration.
	PromiseDuration time.Duration
	// MaxEntryBytes bounds the entries in one message and what is applied in one go. Default 1 MiB.
	MaxEntryBytes uint64
	// MaxInflightBytes bounds the entries sent to a follower and not acknowledged. Default 8 MiB.
	MaxInflightBytes uint64
	// MaxUncommittedBytes bounds a leader's uncommitted entries. Default 256 MiB: a proposer has
	// two of the largest on their way, and Raft hears of the end of the first when the third is
	// proposed.
	MaxUncommittedBytes uint64
	// MaySleep, if not nil, is asked when a leader has found that the group can go to sleep, and
	// goes if that returns true.
	MaySleep func() bool
	// Founder: the replica has been a voter since the group began, and has never been here before.
	// It votes although it has nothing, as a follower that lags does. Any other replica without a
	// configuration came later, and does not vote before it has a snapshot.
	Founder bool
	// TellCommits has followers told at once what is committed, because requests wait for what they
	// apply. It costs a message to each for an entry behind which no other comes soon.
	TellCommits bool
	Logger      *slog.Logger
}

// Group is one replica's part in a Raft group. It is not safe for concurrent use, but for Lease.
type Group struct {
	config Config
	node   *raft.RawNode

	term     uint64
	leader   keys.ReplicaID
	isLeader bool

	lease        leaseTracker
	leasePromise leasePromise
	echo         map[keys.ReplicaID]uint64
	sleep        sleeper

	withholdVotes bool
	aversion      aversion
	tieBreak      tieBreak
	succession    succession
	// abdicated: this replica handed over in the present term; Raft may still have it for the
	// leader.
	abdicated bool
	// handed: another replica was asked to take over in the present term.
	handed bool
	// successorAfter is until when a leader that has abdicated asks no replica to follow it,
	// successor which one it asks first then (0: the one that has most), and now the time of the
	// last Output.
	successorAfter, now int64
	successor           keys.ReplicaID
	// stored is what the storage has, or has been given to store.
	stored struct{ term, vote, commit uint64 }
	// lastChange is the last entry that changes the configuration which the storage was given;
	// after a start the end of the log, for it may be one.
	lastChange uint64
	// appended is the last entry that the storage was given; it may not have it yet.
	appended uint64
	// own is the index of the first entry of the term ownTerm, in which this replica leads, or led.
	own, ownTerm uint64
	// reads is how many read requests Raft has not answered, on a leader.
	reads int
	// told is up to where followers are to be told what is committed: as far as it was when a read
	// index was asked for last.
	told uint64
	// tell: the next Output tells of the leadership.
	tell          bool
	validator     validator
	configuration atomic.Pointer[Configuration]
	// heartbeatAnswered: a follower has answered a heartbeat since the last Output, so Raft may ask
	// it for what was lost.
	heartbeatAnswered bool
}

// New opens a group on its storage. It returns ErrImplausible if that holds what cannot be.
func New(c Config) (_ *Group, err error) {
	defer func() {
		if p := recover(); p != nil { // Raft's, of a storage that does not agree with itself
			invariants.Again(p)
			err = fmt.Errorf("group %s: %w: %v", c.ID, ErrImplausible, p)
		}
	}()
	if c.ElectionTicks == 0 {
		c.ElectionTicks = 10
	}
	if c.MaxEntryBytes == 0 {
		c.MaxEntryBytes = 1 << 20
	}
	if c.MaxInflightBytes == 0 {
		c.MaxInflightBytes = 8 << 20
	}
	if c.MaxUncommittedBytes == 0 {
		c.MaxUncommittedBytes = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Group{config: c}
	g.leasePromise.duration = max(c.PromiseDuration, c.LeaseDuration)
	hard, conf, err := c.Storage.InitialState()
	if err == nil {
		err = sane(c.Storage, hard)
	}
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", c.ID, err)
	}
	g.node, err = raft.NewRawNode(&raft.Config{
		ID:                        uint64(c.Self),
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   c.Storage,
		Applied:                   c.Applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             c.MaxEntryBytes,
		MaxCommittedSizePerReady:  c.MaxEntryBytes,
		MaxUncommittedEntriesSize: c.MaxUncommittedBytes,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          c.MaxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{c.Logger, c.ID, c.Self},
		DisableProposalForwarding: true,
	})
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", c.ID, err)
	}
	last, err := c.Storage.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", c.ID, err)
	}
	if c.Configuration.Empty() {
		c.Configuration = configurationOf(conf)
	}
	if !c.Configuration.Agrees(conf) {
		return nil, fmt.Errorf("group %s: the state has the configuration %s, and the log %v", c.ID,
			&c.Configuration, conf)
	}
	g.configuration.Store(&c.Configuration)
	g.validator.logEnds(last)
	g.term = hard.GetTerm()
	g.stored.term, g.stored.vote, g.stored.commit = hard.GetTerm(), hard.GetVote(), hard.GetCommit()
	g.lastChange = last
	g.lease.init(c.Configuration, c.Self, c.LeaseDuration)
	return g, nil
}

// ID returns the group's id.
func (g *Group) ID() keys.PartitionID { return g.config.ID }

// Self returns this replica's id.
func (g *Group) Self() keys.ReplicaID { return g.config.Self }

// Leadership returns what the last Output said.
func (g *Group) Leadership() Leadership {
	return Leadership{Term: g.term, Leader: g.leader, IsLeader: g.isLeader}
}

// Lease is for readers in other goroutines.
func (g *Group) Lease() *Lease { return &g.lease.published }

// WithholdVotes keeps the group from voting (but in a leadership transfer) and from campaigning,
// until it is called with false: a follower that restarted has forgotten which leader it heard, and
// for how long it promised to be faithful. Afterwards a replica that is awake, and still knows of
// no leader, does not wait for a random time more before it campaigns.
func (g *Group) WithholdVotes(withhold bool) {
	if g.withholdVotes && !withhold && g.leader == 0 && !g.sleep.asleep {
		g.succession.due = true
	}
	g.withholdVotes = withhold
}

// campaignTransfer is the context of the votes that a leadership transfer asks for.
const campaignTransfer = "CampaignTransfer"

// Step takes a message from a peer. The message belongs to the group from here on. What Raft
// refuses is dropped, as a network may drop it; so is what cannot be, and then the reason is
// returned.
func (g *Group) Step(m *peerpb.RaftMessage) Refusal {
	if why := g.WellFormed(m); why != "" {
		return why
	}
	if m.GetWake() {
		g.Wake()
		return ""
	}
	if why := g.believable(m); why != "" {
		return why
	}
	g.take(m)
	return ""
}

// take takes a message that can be.
func (g *Group) take(m *peerpb.RaftMessage) {
	kind := raftpb.MessageType(m.GetType())
	from := keys.ReplicaID(m.GetFrom())
	vote := asksForVote(kind, m.GetContext())
	if vote && (g.withholdVotes || g.Configuration().Empty() && !g.config.Founder) {
		return
	}
	if kind != raftpb.MsgHeartbeatResp && !m.GetSleep() {
		g.wakeUp(false)
	}
	if m.GetSent() != 0 {
		switch kind {
		case raftpb.MsgHeartbeat:
			if g.echo == nil {
				g.echo = make(map[keys.ReplicaID]uint64, 1)
			}
			// The earliest of several: the answer then promises less.
			if old, ok := g.echo[from]; !ok || m.GetSent() < old {
				g.echo[from] = m.GetSent()
			}
		case raftpb.MsgHeartbeatResp:
			g.lease.heard(from, m.GetTerm(), int64(m.GetSent()))
		}
	}
	if kind == raftpb.MsgHeartbeatResp {
		g.heartbeatAnswered = true
	}
	g.succession.heard(g, m)
	msg := inbound(m)
	if kind == raftpb.MsgHeartbeat && m.GetCommit() > g.validator.least {
		// Entries that came just before may have taken the place of that one; the next heartbeat
		// says it again.
		msg.Commit = nil
	}
	switch {
	case vote && (g.leasePromise.until != 0 || g.isLeader):
		g.leasePromise.votes = append(g.leasePromise.votes, msg)
		return
	case vote:
		g.considerVote(msg)
		return
	}
	g.step(msg)
	if m.GetSleep() && kind == raftpb.MsgHeartbeat {
		g.maybeFollowToSleep(m)
	}
}

func (g *Group) step(m *raftpb.Message) {
	if err := g.node.Step(m); err != nil && !errors.Is(err, raft.ErrProposalDropped) &&
		!errors.Is(err, raft.ErrStepPeerNotFound) {
		g.config.Logger.Debug("raft message refused", "group", g.config.ID, "type",
			m.GetType().String(), "error", err)
	}
}

// acceptable says whether a message of this type may come from a peer. Local messages and proposals
// may not; and reads are asked of leaders only, so none is forwarded.
func acceptable(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote,
		raftpb.MsgPreVoteResp,
		raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// StepLocal takes the answer of a storage thread.
func (g *Group) StepLocal(m *raftpb.Message) error { return g.node.Step(m) }

// Tick advances the group's timers. It does nothing in a sleeping group. A leader that has had
// nothing to do for sleepAfter ticks (0: never) puts the group to sleep, without those followers
// that away says are away (nil: none is).
func (g *Group) Tick(sleepAfter int, away func(keys.ReplicaID) bool) {
	if g.sleep.asleep || g.maybeLeadToSleep(sleepAfter, away) {
		return
	}
	g.aversion.tick(g.leader)
	g.tickValidator()
	g.tieBreak.tick(&g.leasePromise)
	g.node.Tick()
	if g.abdicated {
		g.pushTransfer()
	}
}

// Propose appends entries to the log if this replica leads at term, all of them or none. Once Raft
// has refused some, this replica's leadership is over.
func (g *Group) Propose(term uint64, data [][]byte) error {
	g.wakeUp(false)
	g.sleep.idle = 0
	if !g.isLeader || g.term != term {
		return raft.ErrProposalDropped
	}
	boxes := make([]raftpb.Entry, len(data))
	entries := make([]*raftpb.Entry, len(data))
	for i, d := range data {
		boxes[i].Data = d
		entries[i] = &boxes[i]
	}
	self := uint64(g.config.Self)
	err := g.node.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &self, Entries: entries})
	if errors.Is(err, raft.ErrProposalDropped) {
		// Too much is uncommitted. What comes later must not be appended without this.
		g.abdicate()
	}
	return err
}

// ReadIndex asks for a read index; it comes back in an Output with the same request, or never (a
// change of leader). No two requests in one term may be the same.
func (g *Group) ReadIndex(request []byte) {
	g.Wake()
	g.sleep.idle = 0
	g.reads++
	g.told = max(g.told, g.node.BasicStatus().GetCommit())
	g.node.ReadIndex(request)
}

// Campaign starts an election, which PreVote keeps from disturbing a leader that is heard.
func (g *Group) Campaign() {
	g.wakeUp(false)
	if !g.isLeader && !g.withholdVotes {
		if err := g.node.Campaign(); err != nil {
			g.config.Logger.Debug("campaign refused", "group", g.config.ID, "error", err)
		}
	}
}

// CampaignAgain starts an election anew that has found too few that would vote; one in which votes
// are counted goes on.
func (g *Group) CampaignAgain() {
	if g.node.BasicStatus().RaftState != raft.StateCandidate {
		g.Campaign()
	}
}

// Progress describes a follower, as its leader sees it.
type Progress struct {
	Match  uint64
	Active bool
	// Snapshot says that the follower is waiting for one.
	Snapshot bool
	Role     Role
}

// Applied is what Raft has been told is applied, which may be less than what is.
func (g *Group) Applied() uint64 { return g.node.BasicStatus().Applied }

// Followers calls visit for each other replica, on a leader.
func (g *Group) Followers(visit func(keys.ReplicaID, Progress)) {
	if !g.isLeader {
		return
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if keys.ReplicaID(id) != g.config.Self {
			visit(keys.ReplicaID(id), Progress{Match: p.Match, Active: p.RecentActive,
				Snapshot: p.State == stateSnapshot, Role: g.Configuration().Role(keys.ReplicaID(id))})
		}
	})
}

// Unreachable tells that messages to a replica were lost.
func (g *Group) Unreachable(id keys.ReplicaID) {
	if g.isLeader {
		g.node.ReportUnreachable(uint64(id))
	}
}

// SnapshotSent tells how the sending of a snapshot ended.
func (g *Group) SnapshotSent(id keys.ReplicaID, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	g.node.ReportSnapshot(uint64(id), status)
}
