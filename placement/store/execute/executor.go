package execute

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Group are the methods of the Raft group that the Executor needs.
type Group interface {
	// Propose appends data to the log if this replica still leads at term when the proposal's turn
	// comes; otherwise a call of SetLeadership follows. Propose does not block, and takes over
	// data.
	Propose(term uint64, data []byte) error
	// ProposeChange is Propose for an entry that changes the configuration to next when it is
	// applied. A change that is not one step, or would leave the leader out, ends the leadership.
	ProposeChange(term uint64, data []byte, next group.Configuration) error
}

// Peers sends requests to the leading member.
type Peers interface {
	// Execute forwards an encoded command to the member that leads at a term, whose
	// Executor.ServeExecute takes it. NotLeaderError means that the member did nothing because it
	// does not lead at that term; after any other error the outcome is open.
	Execute(ctx context.Context, leader keys.ReplicaID, term uint64, command []byte) ([]byte, error)
}

// Machine is the state machine that executes the commands. The Executor calls it without locks.
type Machine interface {
	// Prepare refuses commands that must not be proposed, does the necessary preparation, and
	// returns the command to propose. It is called on the leader.
	Prepare(ctx context.Context, c *storepb.Command) (*storepb.Command, error)
	// Reserve admits a command by the quota, before it is proposed, and returns the reserved bytes.
	// Release returns the bytes of commands that are not applied.
	Reserve(ctx context.Context, c *storepb.Command) (bytes uint64, err error)
	Release(bytes uint64)
	// Members are the group's members in the applied state.
	Members() *storepb.Members
	// AppliedIndex is the index of the newest applied and visible entry. Reach waits until an entry
	// is applied and visible.
	AppliedIndex() uint64
	Reach(ctx context.Context, index uint64) error
}

// Config configures an Executor. With nil Peers only the leader accepts commands.
type Config struct {
	// Name is the store's name in errors.
	Name    string
	Machine Machine
	Peers   Peers
	// MaxPending and MaxPendingBytes bound the commands with open outcome.
	MaxPending      int
	MaxPendingBytes int64
	// GroupCommands lets commands that arrive while an entry is in flight share the next entry.
	GroupCommands bool
	// Origin is the id of this process in its commands; not 0.
	Origin uint64
	// Latency observes the seconds from the proposal of a command here to its outcome.
	Latency prometheus.Observer
}

// Executor accepts commands, and determines their outcomes. Its methods may be called from any
// goroutine.
type Executor struct {
	config  Config
	machine Machine
	// requests is the number of the latest command of this process.
	requests atomic.Uint64
	// budget bounds the commands that were proposed and whose outcome this member does not know
	// yet. They are in the log of a leader that may be unable to commit, whether their callers
	// still wait or not. Above Raft's limit the leader would have to give up its leadership.
	budget  *fairshare.Share
	grouped chan struct{} // wakes the proposer
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		group      Group
		leadership group.Leadership
		// appliedTerm is the term of the newest applied entry.
		appliedTerm uint64
		pending     map[ID]*pending
		forwarded   forwarded
		grouping    grouping
		closed      bool
		// changed is closed when the leadership changes, and replaced.
		changed chan struct{}
	}
}

// New returns an Executor without a leader. The caller closes it.
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

// SetGroup sets the Raft group, once, before the Executor is used.
func (x *Executor) SetGroup(g Group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.group = g
}

// start runs f on a goroutine that Stop waits for. It returns false after Stop.
func (x *Executor) start(f func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.running.Go(f)
	return true
}

// Pending returns the number of commands with open outcome, and their bytes. Refused returns the
// number of calls since the process started that ended before their command was admitted.
func (x *Executor) Pending() (commands, bytes int64) {
	return x.budget.Held()
}

// Refused is explained at Pending.
func (x *Executor) Refused() int64 { return x.budget.Refused() }

// enter waits until ctx ends for a command's share of the budget, and takes it.
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

// WithClient sets the client on whose behalf Do and Execute are called. Waiting commands of
// different clients are admitted in turn. All callers without a client count as one client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}
