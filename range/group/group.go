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
	// Configuration is the state machine's configuration as of Applied, together with that of
	// Storage. Empty: it is made from Storage.
	Configuration Configuration
	// Applied is the state machine's applied index.
	Applied uint64
	// ElectionTicks is how long a follower waits for its leader: a random number of ticks between
	// ElectionTicks and twice as many. Default 10.
	ElectionTicks int
	// LeaseDuration is how long a quorum's answer to a heartbeat extends the lease, from when the
	// heartbeat was sent. It must be less than ElectionTicks-1 tick intervals by the margin for
	// clock drift.
	LeaseDuration time.Duration
	// PromiseDuration is how long a replica that has answered a heartbeat neither votes nor
	// campaigns: LeaseDuration plus the margin for clock drift. Default LeaseDuration.
	PromiseDuration time.Duration
	// MaxEntryBytes bounds the entries in one message, and the entries applied at once. Default 1
	// MiB.
	MaxEntryBytes uint64
	// MaxInflightBytes bounds the entries sent to a follower and not acknowledged. Default 8 MiB.
	MaxInflightBytes uint64
	// MaxUncommittedBytes bounds a leader's uncommitted entries. Default 256 MiB: a proposer may
	// have two of the largest entries on their way, and Raft may not know yet that the first has
	// ended when the third is proposed.
	MaxUncommittedBytes uint64
	// MaySleep, if not nil, is called when a leader has found that the group can go to sleep. The
	// group sleeps if it returns true.
	MaySleep func() bool
	// Founder is set if the replica has been a voter since the group began, and is opened for the
	// first time. It votes with an empty log, as a follower that lags does. Any other replica
	// without a configuration was added later, and does not vote before it has a snapshot.
	Founder bool
	// TellCommits makes a leader tell its followers of each commit at once, because requests wait
	// for what followers apply. The price is a message to each follower for an entry that no other
	// entry follows soon.
	TellCommits bool
	Logger      *slog.Logger
}

// Group is one replica's part in a Raft group. It is not safe for concurrent use, but for Lease.
type Group struct {
	config Config
	node   *raft.RawNode
	leading
	lease leaseTracker
	// echo holds, per leader, the clock reading of its last unanswered heartbeat.
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

// leading says which replica leads.
type leading struct {
	term     uint64
	leader   keys.ReplicaID
	isLeader bool
	// tell is set if the next Output must carry the leadership.
	tell bool
}

// Leadership returns the leadership of the last Output.
func (l *leading) Leadership() Leadership {
	return Leadership{Term: l.term, Leader: l.leader, IsLeader: l.isLeader}
}

// sleep is a replica's state of its group's sleep.
type sleep struct {
	asleep bool
	// without lists the followers that were away when the group fell asleep, and may lack entries.
	without []keys.ReplicaID
	// idle counts ticks without a proposal or read, on a leader.
	idle int
	// quiesce are messages that the sleeping or waking replica still has to send.
	quiesce []*peerpb.RaftMessage
}

// handover is the state of a leader's hand-over.
type handover struct {
	// abdicated is set if this replica handed over in the present term. Raft may still count it as
	// the leader.
	abdicated bool
	// handed is set if another replica was asked to take over in the present term.
	handed bool
	// successorAfter is the time before which a leader that has abdicated asks no replica to take
	// over. successor is the replica that it then asks first (0: the one with the longest log).
	successorAfter int64
	successor      keys.ReplicaID
}

// voting holds what a replica's votes and campaigns depend on.
type voting struct {
	// withholdVotes: see Group.WithholdVotes.
	withholdVotes bool
	aversion      aversion
	tieBreak      tieBreak
	succession    succession
	leasePromise  leasePromise
}

// New opens a group on its storage. It returns ErrImplausible if the storage contradicts itself.
func New(c Config) (_ *Group, err error) {
	defer func() {
		if p := recover(); p != nil { // Raft's, about a storage that contradicts itself
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
		lastChange: last, appended: last}
	g.lease.init(c.Configuration, c.Self, c.LeaseDuration)
	return g, nil
}

// Appended returns the index of the last entry that was given to the storage.
func (g *Group) Appended() uint64 { return g.stored.appended }

// ID returns the group's id.
func (g *Group) ID() keys.PartitionID { return g.config.ID }

// Self returns this replica's id.
func (g *Group) Self() keys.ReplicaID { return g.config.Self }

// Lease returns the lease, for readers in other goroutines.
func (g *Group) Lease() *Lease { return &g.lease.published }

// Configuration returns the group's replicas, as of the last applied entry. It may be called from
// any goroutine.
func (g *Group) Configuration() *Configuration { return g.configuration.Load() }

// electable reports whether a replica can take over the leadership.
func (g *Group) electable(id keys.ReplicaID) bool { return g.Configuration().Electable(id) }

// WithholdVotes keeps the replica from voting (except in a leadership transfer) and from
// campaigning, until it is called with false: a follower that restarted has forgotten which leader
// it heard, and until when it promised to follow. When it is called with false, a replica that is
// awake and still knows no leader campaigns without a further random wait.
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
	// Snapshot is set if the follower waits for a snapshot.
	Snapshot bool
	Role     Role
}

// Applied returns the index that Raft was told is applied. The state machine may have applied more.
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

// Unreachable tells Raft that messages to a replica were lost.
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
