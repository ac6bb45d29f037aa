package group

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"

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
	leading
	lease leaseTracker
	// echo is what the heartbeats of leaders carried that are not answered yet.
	echo map[keys.ReplicaID]uint64
	sleep
	voting
	handover
	// now is the time of the last Output.
	now    int64
	stored stored
	reads  reads
	commits
	validator
	configuration atomic.Pointer[Configuration]
}

// leading is who leads.
type leading struct {
	term     uint64
	leader   keys.ReplicaID
	isLeader bool
	// tell: the next Output tells of the leadership.
	tell bool
}

// Leadership returns what the last Output said.
func (l *leading) Leadership() Leadership {
	return Leadership{Term: l.term, Leader: l.leader, IsLeader: l.isLeader}
}

// sleep is what a replica knows of its group's sleep.
type sleep struct {
	asleep bool
	// without are followers that were away when the group fell asleep, and may lack entries.
	without []keys.ReplicaID
	// idle counts ticks without a proposal or read, on a leader.
	idle int
	// quiesce are messages that the sleeping or waking replica still has to send.
	quiesce []*peerpb.RaftMessage
}

// handover is how a leader's hand-over stands.
type handover struct {
	// abdicated: this replica handed over in the present term; Raft may still have it for the
	// leader.
	abdicated bool
	// handed: another replica was asked to take over in the present term.
	handed bool
	// successorAfter is until when a leader that has abdicated asks no replica to follow it, and
	// successor which replica it asks first then (0: the one that has most).
	successorAfter int64
	successor      keys.ReplicaID
}

// voting is what a replica goes by when it votes, or campaigns.
type voting struct {
	// withholdVotes: see Group.WithholdVotes.
	withholdVotes bool
	aversion      aversion
	tieBreak      tieBreak
	succession    succession
	leasePromise  leasePromise
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
	g.stored = stored{term: hard.GetTerm(), vote: hard.GetVote(), commit: hard.GetCommit(),
		lastChange: last}
	g.lease.init(c.Configuration, c.Self, c.LeaseDuration)
	return g, nil
}

// ID returns the group's id.
func (g *Group) ID() keys.PartitionID { return g.config.ID }

// Self returns this replica's id.
func (g *Group) Self() keys.ReplicaID { return g.config.Self }

// Lease is for readers in other goroutines.
func (g *Group) Lease() *Lease { return &g.lease.published }

// Configuration is which replicas the group has, as of what is applied. It may be called from any
// goroutine.
func (g *Group) Configuration() *Configuration { return g.configuration.Load() }

// electable says whether a replica can be handed the lead.
func (g *Group) electable(id keys.ReplicaID) bool { return g.Configuration().Electable(id) }

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
