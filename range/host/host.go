package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/engine"
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
	// ElectionTicks is the number of ticks without its leader after which a follower campaigns: at
	// least this many, at most twice as many. Default 10.
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
	// FollowersApplyAfter is how long followers wait for more committed entries before they apply
	// (apply.go). Default 0: they apply at once, as is right where callers wait for what a follower
	// applies.
	FollowersApplyAfter time.Duration
	// RetainLogBytes is how many bytes of its applied log a group keeps for followers that lag. A
	// follower that needs older entries gets a snapshot. Default 8 MiB.
	RetainLogBytes int64
	// TotalLogBytes bounds the applied log that all groups together keep for such followers: with
	// many groups each keeps less. Default 2 GiB.
	TotalLogBytes int64
	// MaxPendingLogBytes is how many bytes, of all groups together, may wait to be written to the
	// log. Above it, entries of peers are dropped and LogBehind returns true. Default 256 MiB.
	MaxPendingLogBytes int64
	// MaxInboxBytes is how many bytes the inboxes of all groups together may hold before entries of
	// peers are dropped. Messages without entries may use a quarter more. Default 256 MiB.
	MaxInboxBytes int64
	// Clock gives the readings that pings carry. Host.Clocks says how far the clock is trusted.
	Clock *hlc.Clock
	// BelievesClock has the host judge the clock itself and trust it in any case, for owners in
	// which only leases depend on the clock. Otherwise the owner judges it
	// (clockhealth.Health.Look).
	BelievesClock bool
	// OnFailed is told of a group that failed, from a worker's goroutine; optional.
	OnFailed   func(id keys.PartitionID, err error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Monotonic is the clock of leases and ticks. Default: hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	// Random returns the incarnation of this process. Default: the runtime's random source.
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

// defaultDriftMargin is the default of Config.DriftMargin.
const defaultDriftMargin = 0.1

// LeaseDuration returns how long leases last with an election timeout and the default DriftMargin.
func LeaseDuration(tick time.Duration, electionTicks int) time.Duration {
	c := Config{Tick: tick, ElectionTicks: electionTicks, DriftMargin: defaultDriftMargin}
	return c.leaseDuration()
}

// ElectionTicksFor returns the shortest election timeout, in ticks, with which leases last this
// long.
func ElectionTicksFor(tick, lease time.Duration) int {
	ticks := 1 + int(float64(lease)/(float64(tick)*(1-defaultDriftMargin)))
	for LeaseDuration(tick, ticks) < lease {
		ticks++
	}
	return ticks
}

// promiseDuration is how long a follower promises to follow: the election timeout less one tick,
// because the follower's first tick may come right after the heartbeat.
func (c *Config) promiseDuration() time.Duration {
	return time.Duration(c.ElectionTicks-1) * c.Tick
}

// leaseDuration is the followers' promise less the margin for clocks that run at different speeds.
func (c *Config) leaseDuration() time.Duration {
	return time.Duration(float64(c.promiseDuration()) * (1 - c.DriftMargin))
}

// reading returns the monotonic clock that leases and ticks are measured with.
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
	// epoch is the monotonic time at which the host was made. Host.now counts from it.
	epoch int64
	// awake counts the groups that are awake.
	awake atomic.Int64
	ownStatus
	disk        diskSpace
	truncations atomic.Uint64
	slowness
	// clocks holds how far this process trusts its own clock and those of its peers.
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

// running holds what a host has started and must stop.
type running struct {
	started atomic.Bool
	// ctx is the context of the ticker and of the groups' snapshot streams.
	ctx    context.Context
	cancel context.CancelFunc
	// tasks counts the goroutines of the ticker, the shards' workers and the snapshot streams.
	tasks sync.WaitGroup
}

// Peers are the hosts that share a group with this one.
func (h *Host) Peers() *peers.Peers { return &h.peers }

// Clocks returns how far this process trusts its own clock and those of its peers.
func (h *Host) Clocks() *clockhealth.Health { return h.clocks }

// Log gives access to the identities on disk.
func (h *Host) Log() *raftlog.Log { return h.log }

// now returns the monotonic clock in nanoseconds since epoch.
func (h *Host) now() int64 { return h.config.reading() - h.epoch }

// votesWithheld reports whether this process is so young that its restarted groups may still owe a
// promise to a leader.
func (h *Host) votesWithheld(now int64) bool { return now < int64(h.config.electionTimeout()) }

// Tick is the interval of ticks.
func (h *Host) Tick() time.Duration { return h.config.Tick }

// ElectionTimeout returns the shortest time without its leader after which a follower campaigns.
func (h *Host) ElectionTimeout() time.Duration { return h.config.electionTimeout() }

// Awake returns how many groups are awake.
func (h *Host) Awake() int { return int(h.awake.Load()) }

// registry holds the open groups of a host.
type registry struct {
	mu struct {
		sync.RWMutex
		groups map[keys.PartitionID]*Group
		// next is the index of the shard of the next group.
		next int
		// closed is set when no further group may be opened.
		closed bool
	}
}

// Group returns an open group, or nil.
func (r *registry) Group(id keys.PartitionID) *Group {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mu.groups[id]
}

// all lists the open groups.
func (r *registry) all() []*Group {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.mu.groups))
}

// Groups calls visit for every open group.
func (r *registry) Groups(visit func(*Group)) {
	for _, g := range r.all() {
		visit(g)
	}
}
