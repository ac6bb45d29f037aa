package node

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/reports"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/txn"
)

// Metadata is what a node needs of the consistent core.
type Metadata interface {
	table.Source
	reports.Core
}

// Config configures a Node. Fields without a default are required.
type Config struct {
	// ID is the node's id, as the core gave it; peers know this host by it.
	ID keys.NodeID
	// Cluster is the id of the cluster. Metadata of another cluster is refused.
	Cluster uint64
	// Server is the random id of the data directory.
	Server uint64
	// Log and State are the node's databases. They belong to the caller, which closes them after
	// Close.
	Log   *engine.Log
	State *engine.State
	Clock *hlc.Clock
	// Metadata connects to the core.
	Metadata Metadata
	// Logger and Registerer may be nil: then nothing is logged, or no metrics are registered.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Monotonic measures leases, ticks and timeouts of Raft. Default: hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	// Gone, if not nil, reports that a client is no longer connected here: nobody waits for the
	// answers to its requests.
	Gone func(client uint64) bool
	// ClientIdentity, if not nil, returns the address from which a client is connected, and the
	// name of its user; "" if the client is not connected here, or has no user.
	ClientIdentity func(client uint64) (address, user string)
	// Admission configures the queue in which requests wait while the node is asked for more than it
	// can do. Without Admission.Short no request waits.
	Admission workqueue.Config
	// SlowThreshold is from when on requests are kept in the slow log; 0 takes
	// slowlog.DefaultThreshold, and if it is negative, no requests are kept.
	SlowThreshold time.Duration
	// Traces, if not nil, exports the spans of requests: those of clients that trace, of slow requests
	// and of errors, and a share of all by TraceRate.
	Traces    trace.TracerProvider
	TraceRate float64
	// AfterFunc calls a function after a time, for commit wait. Default: time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) timer.Timer
	// Random is used for jitter and the incarnation of this process. Default: the runtime's.
	Random func() uint64

	// Settings of the host; see host.Config for the defaults.
	Tick           time.Duration
	ElectionTicks  int
	SleepAfter     time.Duration
	Shards         int
	RetainLogBytes int64
	// MaxPendingLogBytes and MaxInboxBytes are settings of the host.
	MaxPendingLogBytes, MaxInboxBytes int64

	// Pusher asks the coordinators of transactions that are in the way. Default: none; then
	// requests only wait for them.
	Pusher txn.Pusher
	// Resolver releases the locks of committed transactions in other partitions. Default: none;
	// then the records of such transactions are kept for ever.
	Resolver txn.Resolver
	// Limits bound each replica. PushDelay defaults to 10 ms.
	Limits config.Limits
	// GCInterval is the interval at which the node looks for garbage. Default 1 min.
	GCInterval time.Duration
	// CampaignsPerSecond bounds the elections that are started for groups without a leader. Default
	// 2,000.
	CampaignsPerSecond int
	// UnflushedBytes bounds what is applied to the state before the state is flushed: unflushed
	// changes are applied again after a crash, and keep the logs from being truncated. Default 128
	// MiB.
	UnflushedBytes int64
}

// pushDelay is longer than nearly all transactions hold a lock.
const pushDelay = 10 * time.Millisecond

func (c *Config) ensureDefaults() error {
	if c.ID == 0 || c.Cluster == 0 || c.Log == nil || c.State == nil || c.Clock == nil ||
		c.Metadata == nil {
		return errors.New("node: ID, Cluster, Log, State, Clock and Metadata are required")
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
	if c.AfterFunc == nil {
		c.AfterFunc = timer.Plain
	}
	if c.Tick <= 0 {
		c.Tick = 100 * time.Millisecond
	}
	if c.ElectionTicks <= 0 {
		c.ElectionTicks = 10
	}
	setDefault(&c.GCInterval, time.Minute)
	setDefault(&c.CampaignsPerSecond, 2000)
	setDefault(&c.UnflushedBytes, 128<<20)
	setDefault(&c.Limits.PushDelay, pushDelay)
	return nil
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

func (c *Config) electionTimeout() time.Duration { return time.Duration(c.ElectionTicks) * c.Tick }
