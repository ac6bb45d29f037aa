package execute

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Group is the Raft group as commands need it.
type Group interface {
	// Propose appends data to the log if this replica still leads at term when its turn comes;
	// otherwise SetLeadership tells. It does not block, and it takes over data.
	Propose(term uint64, data []byte) error
	// ProposeChange is Propose for an entry that changes the configuration to next when it is
	// applied. A change that is not one step, or would leave the leader out, ends the leadership.
	ProposeChange(term uint64, data []byte, next group.Configuration) error
}

// Peers reaches the member that leads.
type Peers interface {
	// Execute forwards an encoded command to the member that leads at a term, whose
	// Executor.ServeExecute takes it. NotLeaderError means that the member did nothing because it
	// does not lead at that term; any other error leaves open what it did.
	Execute(ctx context.Context, leader keys.ReplicaID, term uint64, command []byte) ([]byte, error)
}

// Machine is the state machine that commands are for. The Executor holds no lock when it calls.
type Machine interface {
	// Prepare refuses commands that must not be proposed, does what has to come before, and returns
	// the command to propose. It is called on the leader.
	Prepare(ctx context.Context, c *storepb.Command) (*storepb.Command, error)
	// Reserve admits a command by the quota, before it is proposed, and returns how many bytes it
	// has reserved; Release gives back those of a command that is not applied.
	Reserve(ctx context.Context, c *storepb.Command) (bytes uint64, err error)
	Release(bytes uint64)
	// Members are those of the group, as of what is applied.
	Members() *storepb.Members
	// AppliedIndex is that of the newest entry that is applied and visible, and Reach waits until an
	// entry is.
	AppliedIndex() uint64
	Reach(ctx context.Context, index uint64) error
}

// Config is what an Executor is made of. Peers may be nil: then only the leader takes commands.
type Config struct {
	// Name is what errors call the store.
	Name    string
	Machine Machine
	Peers   Peers
	// MaxPending and MaxPendingBytes bound the commands whose outcome is open.
	MaxPending      int
	MaxPendingBytes int64
	// GroupCommands has commands that come while others are on their way share an entry.
	GroupCommands bool
	// Origin names this process in its commands. It is not 0.
	Origin uint64
	// Latency observes for how many seconds commands wait that were proposed here.
	Latency prometheus.Observer
}

// Executor takes commands, and finds out what became of them. Its methods may be called from any
// goroutine.
type Executor struct {
	config  Config
	machine Machine
	// requests numbers the commands of this process.
	requests atomic.Uint64
	// budget bounds the commands that were proposed and whose outcome this member does not know
	// yet. They are in the log of a leader that may be unable to commit, whether their callers
	// still wait or not; if there were more than Raft lets a leader have, it would have to give up
	// its leadership.
	budget  *fairshare.Share
	grouped chan struct{} // for the proposer
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		group      Group
		leadership group.Leadership
		// appliedTerm is the term of the newest entry that is applied.
		appliedTerm uint64
		pending     map[ID]*pending
		forwarded   forwarded
		grouping    grouping
		closed      bool
		// changed is closed when the leadership changes, and replaced.
		changed chan struct{}
	}
}

// New returns an Executor that knows no leader. The caller closes it.
func New(config Config) *Executor {
	x := &Executor{config: config, machine: config.Machine, grouped: make(chan struct{}, 1),
		budget: fairshare.New(fairshare.Limits{Calls: int64(config.MaxPending),
			Bytes: config.MaxPendingBytes})}
	x.mu.pending = map[ID]*pending{}
	x.mu.changed = make(chan struct{})
	x.ctx, x.cancel = context.WithCancel(context.Background())
	if config.GroupCommands {
		x.running.Go(x.proposer)
	}
	return x
}

// SetGroup gives the Raft group, once, before anything is expected of it.
func (x *Executor) SetGroup(g Group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.group = g
}

// Stop ends all calls, and waits for what runs. It may be called more than once.
func (x *Executor) Stop() {
	x.mu.Lock()
	if !x.mu.closed {
		x.mu.closed = true
		x.notifyLocked()
	}
	lost := x.takePendingLocked(func(*pending) bool { return true })
	x.mu.Unlock()
	x.lose(lost)
	x.cancel()
	x.running.Wait()
}

// start runs f on a goroutine that Stop waits for; false if that was called.
func (x *Executor) start(f func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.running.Go(f)
	return true
}

// Leadership says which member leads the core, as this member sees it.
type Leadership struct {
	Term uint64
	// Leader is 0 when no leader is known.
	Leader keys.ReplicaID
	// IsLeader: this member leads.
	IsLeader bool
	// Serving: it leads, and has applied everything that was committed before its term.
	Serving bool
}

// Leadership returns which member leads, and a channel that is closed when that changes.
func (x *Executor) Leadership() (Leadership, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leadershipLocked(), x.mu.changed
}

func (x *Executor) leadershipLocked() Leadership {
	l := x.mu.leadership
	leads := l.IsLeader && !x.mu.closed
	return Leadership{Term: l.Term, Leader: l.Leader, IsLeader: leads,
		Serving: leads && x.mu.appliedTerm == l.Term}
}

// AwaitLeadership waits until the leadership has changed, or for so long. ErrClosed says that there
// will be none here any more.
func (x *Executor) AwaitLeadership(ctx context.Context, d time.Duration) error {
	_, changed := x.Leadership()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-x.ctx.Done():
		return command.ErrClosed
	case <-changed:
	case <-timer.C:
	}
	return nil
}

func (x *Executor) notifyLocked() {
	close(x.mu.changed)
	x.mu.changed = make(chan struct{})
}

// SetLeadership takes a change of the group's leadership, and returns whether this member serves.
// Commands that were proposed here before may be lost.
func (x *Executor) SetLeadership(l group.Leadership) (serving bool) {
	x.mu.Lock()
	x.mu.leadership = l
	lost := x.takePendingLocked(func(p *pending) bool {
		return !p.survives && (!l.IsLeader || p.term != l.Term)
	})
	if !l.IsLeader || x.mu.forwarded.term != l.Term {
		x.mu.forwarded.begin(l.Term)
		x.mu.grouping = grouping{term: l.Term}
	}
	serving = x.leadershipLocked().Serving
	x.notifyLocked()
	x.mu.Unlock()
	x.lose(lost)
	return serving
}

// Answer is the result of a command that was applied.
type Answer struct {
	ID     ID
	Result *storepb.Result
}

// Applied is the change of the Executor by applied entries.
type Applied struct {
	// Known are the commands whose outcome is known now, in the order of the log. The caller passes
	// them to Settle when their effects are visible.
	Known []Known
	// Reserved is how many bytes the commands had reserved that were applied.
	Reserved uint64
	// Serving is Leadership.Serving; Changed is set if it has changed.
	Serving, Changed bool
}

// EntriesApplied takes entries that were applied; term is that of the last one.
//
// INVARIANT: what a reader that finds this member serving has to see is visible before.
func (x *Executor) EntriesApplied(term uint64, answers []Answer) (a Applied) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, newTerm := x.leadershipLocked().Serving, term != x.mu.appliedTerm
	x.mu.appliedTerm = term
	a.Serving = x.leadershipLocked().Serving
	if a.Changed = a.Serving != before; a.Changed {
		x.notifyLocked()
	}
	for _, answer := range answers {
		if p := x.mu.pending[answer.ID]; p != nil { // else its caller knows it from the leader
			delete(x.mu.pending, answer.ID)
			a.Known = append(a.Known, Known{p, outcome{result: answer.Result}})
			a.Reserved += p.reserved
			p.reserved = 0
		}
	}
	if newTerm {
		a.Known = append(a.Known, x.supersededLocked()...)
	}
	return a
}

// EntriesSkipped notes that a snapshot was installed whose last entry has that term: which of the
// commands under way are in it is not known.
func (x *Executor) EntriesSkipped(term uint64) {
	x.mu.Lock()
	x.mu.appliedTerm = term
	skipped := x.takePendingLocked(func(p *pending) bool { return p.survives && p.term <= term })
	x.mu.Unlock()
	var all []Known
	for _, p := range skipped {
		all = append(all, Known{p, outcome{err: fmt.Errorf(
			"%w: this member of %s was behind, and was sent the state as a whole",
			command.ErrOutcomeUnknown, x.config.Name)}})
	}
	x.Settle(all)
}

// Pending is how many commands have an outcome that is open, and their bytes; Refused is how many
// calls have ended before their command was let in, since the process started.
func (x *Executor) Pending() (commands, bytes int64) {
	return x.budget.Held()
}

// Refused: see Pending.
func (x *Executor) Refused() int64 { return x.budget.Refused() }

// enter takes a command's part of the budget, and waits for it until ctx ends.
func (x *Executor) enter(ctx context.Context, size int) error {
	client, _ := ctx.Value(clientKey{}).(string)
	err := x.budget.Enter(ctx, client, size)
	if err == nil {
		return nil
	}
	commands, bytes := x.budget.Held()
	return fmt.Errorf("%w: %d commands with %d bytes wait already, the limits are %d and %d: %w",
		command.ErrOverloaded, commands, bytes, x.config.MaxPending, x.config.MaxPendingBytes, err)
}

type clientKey struct{}

// WithClient says on whose behalf Do and Execute are called. Clients whose commands wait are let in
// by turns. Callers that do not say it are one client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}
