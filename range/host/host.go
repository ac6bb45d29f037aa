package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/applyqueue"
	"github.com/tidemarkdb/tidemark/range/host/closing"
	"github.com/tidemarkdb/tidemark/range/host/peers"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Errors of a group's handle.
var (
	// ErrStopped: the host is closed, or the group removed or failed.
	ErrStopped = errors.New("the group is stopped")
	// ErrNotLeader: this replica does not lead, or stopped leading before it could answer.
	ErrNotLeader = errors.New("this replica does not lead the group")
	// ErrTimeout: no quorum answered in time.
	ErrTimeout = errors.New("no quorum of the group answered")
	// ErrOverloaded: the group's inbox is full.
	ErrOverloaded = errors.New("the group is overloaded")
)

// Transport carries messages to other hosts. Send and Ping never block and may lose what they are
// given.
type Transport interface {
	Send(host uint64, class peer.Class, messages []*peerpb.RaftMessage)
	// Ping sends a ping, together with messages of peer.ClassControl; there may be none.
	Ping(host uint64, ping *peerpb.HostPing, beside []*peerpb.RaftMessage)
	SendSnapshot(ctx context.Context, host uint64, header *peerpb.SnapshotHeader,
		write func(io.Writer) error) error
}

// Config configures a Host. Fields without a default are required.
type Config struct {
	// Self is this host's id, by which replicas name it.
	Self uint64
	// Log is the log database.
	Log *engine.Log
	// Tick is the interval of ticks and heartbeats. Default 100 ms.
	Tick time.Duration
	// ElectionTicks: a follower campaigns after this many to twice this many ticks without its
	// leader. Default 10.
	ElectionTicks int
	// DriftMargin is the part of the election timeout by which a lease ends early. Default 0.1.
	DriftMargin float64
	// SleepAfter is how long a group is idle before it sleeps; negative: never. When very many are
	// awake they sleep earlier. Default 1 s.
	SleepAfter time.Duration
	// Shards is the number of workers that step groups. Default: the number of processors, at most
	// 8.
	Shards int
	// ApplyWorkers is the number of workers that apply. Default: the number of processors, at least
	// 2, at most 8.
	ApplyWorkers int
	// FollowersApplyAfter is how long followers wait before they apply what is committed, for more
	// of it to come (apply.go). Default 0: not at all, as is right where callers wait for what a
	// follower applies.
	FollowersApplyAfter time.Duration
	// RetainLogBytes is how much of its applied log a group keeps for followers that lag; one that
	// needs more gets a snapshot. Default 8 MiB.
	RetainLogBytes int64
	// TotalLogBytes bounds what all groups together keep for that: with many groups each keeps
	// less. Default 2 GiB.
	TotalLogBytes int64
	// MaxPendingLogBytes is how much of all groups together may wait for the log before entries of
	// peers are dropped, and LogBehind says so. Default 256 MiB.
	MaxPendingLogBytes int64
	// MaxInboxBytes is how much the inboxes of all groups together may hold before entries of peers
	// are dropped; a quarter more is for messages without entries. Default 256 MiB.
	MaxInboxBytes int64
	// Clock's readings travel with pings. What is believed of it is in Host.Clocks.
	Clock *hlc.Clock
	// BelievesClock: nothing but leases depends on the clock, so the host looks at it and believes
	// it whatever it does. Otherwise the owner looks (clockhealth.Health.Look).
	BelievesClock bool
	// OnFailed is told of a group that failed, from a worker's goroutine; optional.
	OnFailed   func(id keys.PartitionID, err error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Monotonic measures leases and ticks. Default: hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	// Random gives the incarnation of this process; default: the runtime's.
	Random func() uint64
}

func (c *Config) ensureDefaults() error {
	if c.Log == nil || c.Self == 0 || c.Clock == nil {
		return errors.New("host: Self, Log and Clock are required")
	}
	if c.Tick <= 0 {
		c.Tick = 100 * time.Millisecond
	}
	if c.ElectionTicks <= 0 {
		c.ElectionTicks = 10
	}
	if c.ElectionTicks < 3 {
		return fmt.Errorf("host: an election timeout of %d ticks leaves no time for a lease; at "+
			"least 3 are needed", c.ElectionTicks)
	}
	if c.DriftMargin <= 0 || c.DriftMargin >= 1 {
		c.DriftMargin = defaultDriftMargin
	}
	if c.SleepAfter == 0 {
		c.SleepAfter = time.Second
	}
	if c.Shards <= 0 {
		c.Shards = min(runtime.GOMAXPROCS(0), 8)
	}
	if c.ApplyWorkers <= 0 {
		c.ApplyWorkers = max(2, min(runtime.GOMAXPROCS(0), 8))
	}
	if c.RetainLogBytes <= 0 {
		c.RetainLogBytes = 8 << 20
	}
	if c.TotalLogBytes <= 0 {
		c.TotalLogBytes = 2 << 30
	}
	if c.MaxPendingLogBytes <= 0 {
		c.MaxPendingLogBytes = 256 << 20
	}
	if c.MaxInboxBytes <= 0 {
		c.MaxInboxBytes = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	if c.Monotonic == nil {
		c.Monotonic = hlc.SystemMonotonic()
	}
	return nil
}

// defaultDriftMargin is Config.DriftMargin if none is given.
const defaultDriftMargin = 0.1

// LeaseDuration is how long leases last that go with an election timeout, with the default
// DriftMargin.
func LeaseDuration(tick time.Duration, electionTicks int) time.Duration {
	c := Config{Tick: tick, ElectionTicks: electionTicks, DriftMargin: defaultDriftMargin}
	return c.leaseDuration()
}

// ElectionTicksFor is the shortest election timeout, in ticks, with leases that last for so long.
func ElectionTicksFor(tick, lease time.Duration) int {
	ticks := 1 + int(float64(lease)/(float64(tick)*(1-defaultDriftMargin)))
	for LeaseDuration(tick, ticks) < lease {
		ticks++
	}
	return ticks
}

// promiseDuration is the election timeout less one tick: a follower's first tick may come right
// after the heartbeat.
func (c *Config) promiseDuration() time.Duration {
	return time.Duration(c.ElectionTicks-1) * c.Tick
}

// leaseDuration is what followers promise, less the margin for clocks that run at different speeds.
func (c *Config) leaseDuration() time.Duration {
	return time.Duration(float64(c.promiseDuration()) * (1 - c.DriftMargin))
}

// reading is the clock that leases and ticks are measured with.
func (c *Config) reading() int64 {
	return c.Monotonic()
}

func (c *Config) electionTimeout() time.Duration { return time.Duration(c.ElectionTicks) * c.Tick }

// Host runs the groups of one process.
type Host struct {
	config    Config
	log       *raftlog.Log
	transport Transport
	metrics   *metrics
	// epoch is when the host was made: monotonic times are counted from it.
	epoch int64
	// awake is how many groups are awake.
	awake atomic.Int64
	ownStatus
	disk        diskSpace
	truncations atomic.Uint64
	slowness
	// clocks is what this process believes of its clock and of its peers'.
	clocks *clockhealth.Health
	sleepers

	shards       []*shard
	apply        *applyPool
	snapshots    snapshotSender
	peers        peers.Peers
	refusals     refusals
	wakes        wakes
	inboxes      inboxBudget
	pendingVotes pendingVotes

	running
	registry
}

// running is what a host has started, and how it ends.
type running struct {
	started atomic.Bool
	// ctx is of the ticker, and of the groups' snapshot sends.
	ctx    context.Context
	cancel context.CancelFunc
	// tasks are the ticker, the shards' workers and snapshot sends.
	tasks sync.WaitGroup
}

// New opens the log and makes a host that does nothing before Start.
func New(c Config) (*Host, error) {
	if err := c.ensureDefaults(); err != nil {
		return nil, err
	}
	h := &Host{config: c, epoch: c.reading()}
	h.incarnation = c.Random()
	h.snapshots = snapshotSender{host: h, slots: make(chan struct{}, maxSnapshots)}
	h.wakes.groups = &h.registry
	h.mu.groups = make(map[keys.PartitionID]*Group)
	h.sleepers = sleepers{leading: closing.NewLeading(), following: closing.NewFollowing(h.sleeper)}
	h.peers.Init()
	h.inboxes.limit = c.MaxInboxBytes
	// A registry may be asked at any moment, also now.
	h.metrics = newMetrics(c.Registerer, func() float64 { return float64(h.awake.Load()) },
		func() float64 {
			all, _ := h.peers.Count()
			return float64(all)
		}, func() float64 {
			if h.slowness.slow.Load() {
				return 1
			}
			return 0
		})
	promise, lease := c.promiseDuration(), c.leaseDuration()
	h.clocks = clockhealth.New(clockhealth.Config{
		Clock: c.Clock, Now: h.now, LeaseDuration: lease,
		LeaseSlack:      clockhealth.Slack(c.Clock.MaxOffset(), promise, lease),
		ElectionTimeout: c.electionTimeout(), Peers: h.peers.Count,
	})
	h.ctx, h.cancel = context.WithCancel(context.Background())
	var err error
	h.log, err = raftlog.Open(c.Log, raftlog.Options{
		OnAppended: h.onAppended, Monotonic: c.Monotonic, Logger: c.Logger,
		Registerer: c.Registerer,
	})
	if err != nil {
		return nil, err
	}
	h.apply = applyqueue.New[task, []group.Entry](c.ApplyWorkers, c.FollowersApplyAfter)
	for range c.Shards {
		h.shards = append(h.shards, newShard(h))
	}
	return h, nil
}

// Peers are the hosts that share a group with this one.
func (h *Host) Peers() *peers.Peers { return &h.peers }

// Clocks is what this process believes of its clock and of its peers'.
func (h *Host) Clocks() *clockhealth.Health { return h.clocks }

// Log gives access to the identities on disk.
func (h *Host) Log() *raftlog.Log { return h.log }

// Start starts the workers. Groups opened before make a burst of work less than groups opened
// after.
func (h *Host) Start(t Transport) {
	h.transport = t
	h.started.Store(true)
	for _, s := range h.shards {
		h.tasks.Add(1)
		go s.run()
	}
	h.apply.Start()
	h.tasks.Add(1)
	go h.tickLoop()
}

// Close stops all work. What is in flight ends as unknown; a caller that waits for a read index
// gets ErrStopped. The transport must deliver nothing more once Close has been called.
func (h *Host) Close() {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return
	}
	h.mu.closed = true
	h.mu.Unlock()
	groups := h.all()
	h.cancel()
	for _, s := range h.shards {
		s.stop()
	}
	h.tasks.Wait()
	h.log.Close()
	h.apply.Stop()
	for _, g := range groups {
		g.shutDown()
	}
}

// now is the monotonic clock in nanoseconds.
func (h *Host) now() int64 { return h.config.reading() - h.epoch }

// votesWithheld says whether this process is so young that its restarted groups may owe a promise
// to a leader.
func (h *Host) votesWithheld(now int64) bool { return now < int64(h.config.electionTimeout()) }

// Tick is the interval of ticks.
func (h *Host) Tick() time.Duration { return h.config.Tick }

// ElectionTimeout is for how long a follower hears nothing of its leader before it campaigns, at
// least.
func (h *Host) ElectionTimeout() time.Duration { return h.config.electionTimeout() }

// Awake returns how many groups are awake.
func (h *Host) Awake() int { return int(h.awake.Load()) }

// Storage is the group's log. It is open as long as the group is.
func (g *Group) Storage() *raftlog.Group { return g.storage }

// GroupConfig describes a replica to be opened.
type GroupConfig struct {
	Identity raftlog.Identity
	// Hosts says on which host each replica is with which the group was founded, this one included.
	// It is for state machines that say nothing of it themselves (group.Configured).
	Hosts map[keys.ReplicaID]uint64
	// New says that the replica was created by this process and has never voted. It may do so at
	// once.
	New bool
	// Founder and TellCommits: see group.Config.
	Founder, TellCommits bool
	// Open makes the state machine; the handle may be kept, but not used before Open has returned.
	Open func(*Group) (group.StateMachine, error)
}

// Open opens a group whose identity Log().Create has written. It starts asleep.
func (h *Host) Open(c GroupConfig) (*Group, error) {
	id := c.Identity.Group
	g := &Group{host: h, identity: c.Identity, founded: group.Founded(c.Hosts)}
	g.inbox.budget, g.stopped = &h.inboxes, make(chan struct{})
	g.addresses.init(h.config.Self, &h.peers)
	g.applier.group = g
	g.applier.queue.Init(h.apply, &g.applier)
	sm, err := c.Open(g)
	if err != nil {
		return nil, err // it says what it is of
	}
	g.machine, g.closes.group = sm, g
	g.closes.closer, _ = sm.(group.Closer)
	index, term := sm.Applied()
	members := g.machineConfiguration()
	g.setApplied(index, term, &members)
	if g.storage, err = h.log.OpenGroup(c.Identity, g.appliedState); err != nil {
		return nil, err
	}
	if !c.New {
		alone, err := g.alwaysAlone(&members, index)
		if err != nil {
			h.log.CloseGroup(g.storage)
			return nil, err
		}
		g.restarted = !alone
	}
	g.core, err = group.New(group.Config{
		ID: id, Self: g.Self(), Storage: g.storage, Applied: index, Configuration: members,
		ElectionTicks: h.config.ElectionTicks, LeaseDuration: h.config.leaseDuration(),
		PromiseDuration: h.config.promiseDuration(), MaySleep: g.closes.sleep,
		Founder: c.Founder, TellCommits: c.TellCommits, Logger: h.config.Logger,
	})
	if err != nil {
		h.log.CloseGroup(g.storage)
		return nil, err
	}
	g.reconfigured()
	g.lease = lease{g.core.Lease(), h.clocks, h.now, h.config.leaseDuration()}
	initial := g.core.Leadership()
	g.leadership.Store(&initial)
	if hard, _, err := g.storage.InitialState(); err == nil {
		g.committed.Store(hard.GetCommit())
	}
	g.core.FallAsleep()

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, ErrStopped
	}
	if h.mu.groups[id] != nil {
		return nil, fmt.Errorf("group %s is open already", id)
	}
	g.ctx, g.cancel = context.WithCancel(h.ctx)
	g.shard = h.shards[h.mu.next%len(h.shards)]
	h.mu.next++
	h.mu.groups[id] = g
	g.count(true)
	h.metrics.groups.Inc()
	h.hearPendingVotes(g)
	return g, nil
}

// Remove stops a group and waits until nothing of it is in flight. Its log and state are still
// there: the caller destroys the state and then calls Log().Remove, in this order, so that a crash
// between the two leaves a replica that is opened and removed again.
func (h *Host) Remove(g *Group) {
	h.mu.Lock()
	if h.mu.groups[g.ID()] == g {
		delete(h.mu.groups, g.ID())
		g.count(false)
		h.metrics.groups.Dec()
	}
	h.mu.Unlock()
	h.following.Changed(g.ID(), true)
	g.stopAndWait()
	h.log.CloseGroup(g.storage)
}
