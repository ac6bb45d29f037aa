package concurrency

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/txn"
)

// The types of package locks, instantiated for this package.
type (
	Lock        = locks.Lock[*Waiter]
	State       = locks.State
	Transaction = locks.Transaction[*Waiter]
)

// Owner is what the timers of a Manager call: a replica, without its lock held.
type Owner interface {
	// ReevaluateWaiters is called when it is time for Manager.Reevaluate, after Timer.Ticked.
	ReevaluateWaiters()
	// ContinueResolution is called when a pause is over: if Resolutions.EndPause says so, the next
	// entry is due.
	ContinueResolution(*Resolution)
}

// Config is what the managers of one node share. It is made once, by Prepare, and not copied.
type Config struct {
	Metrics *Metrics
	Logger  *slog.Logger
	// Random is for jitter.
	Random func() uint64
	// Pushes is set if coordinators can be asked. Otherwise requests only wait.
	Pushes bool
	// Disconnected, if not nil, reports that a client no longer waits for the answers to its
	// requests.
	Disconnected func(client uint64) bool
	// Load measures the node's foreground load.
	Load *admission.Load
	// Pacer decides how long resolutions pause, and Paced holds the transactions whose resolutions
	// pause. Prepare makes both.
	Pacer *admission.Pacer
	Paced *admission.Members[txn.ID]
	// ManualTime, if not nil, reports that a test controls time, so that no timer runs and nothing
	// pauses.
	ManualTime func() bool
	Limits
	// PushDelay is how long writes wait for a transaction before its coordinator is asked.
	PushDelay time.Duration

	spans spanBudget
}

// Limits bound locks, and requests that wait for locks.
type Limits struct {
	// MaxBlockers is how many transactions a read waits for at once. It looks for further ones
	// afterwards.
	MaxBlockers int
	// MaxLocks bounds the locked keys of a partition.
	MaxLocks int
	// MaxSpanLocks bounds the locked spans of a partition, TotalSpanLocks those of all partitions.
	MaxSpanLocks, TotalSpanLocks int
	// MaxWaiters bounds the writes of a partition that wait, MaxWaiterBytes their size together.
	MaxWaiters, MaxWaiterBytes int
}

// spanBudget bounds the span locks of all partitions that a node leads. A span lock takes the
// memory of its bounds, and some 300 bytes.
type spanBudget struct {
	count, bytes atomic.Int64
	most         int64
}

// maxSpanLockBytes bounds the total size of the bounds of a node's span locks.
const maxSpanLockBytes = 16 << 20

// fits reports whether so many more span locks may be held. Partitions that ask at the same moment
// may exceed the bound together, each by what one request holds.
func (b *spanBudget) fits(count, bytes int) bool {
	return b.count.Load()+int64(count) <= b.most && b.bytes.Load()+int64(bytes) <= maxSpanLockBytes
}

// DefaultMaxBlockers is the default of Config.MaxBlockers.
const DefaultMaxBlockers = 256

// Prepare sets defaults. It is called once, before the first Init.
func (c *Config) Prepare() {
	if c.MaxBlockers == 0 {
		c.MaxBlockers = DefaultMaxBlockers
	}
	c.spans.most = int64(c.TotalSpanLocks)
	c.Pacer = admission.NewPacer(admission.Resolution, c.Load)
	c.Paced = admission.NewMembers[txn.ID](maxPaced)
}

func (c *Config) manualTime() bool { return c.ManualTime != nil && c.ManualTime() }

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// since returns the seconds since start, for metrics.
func since(start time.Time) float64 { return time.Since(start).Seconds() }

// age orders transactions. A request without a transaction counts as the youngest.
type age struct {
	begun hlc.Timestamp
	id    txn.ID
}

func (a age) olderThan(b age) bool { return txn.Older(a.begun, a.id, b.begun, b.id) }
