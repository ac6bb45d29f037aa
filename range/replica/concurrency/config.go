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

// The lock table's types, as this package uses them.
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
	// Pushes says that coordinators can be asked. Without it they are waited for only.
	Pushes bool
	// Disconnected, if not nil, says that a client does not wait for the answers to its requests
	// any more.
	Disconnected func(client uint64) bool
	// Load is what the foreground asks of the node.
	Load *admission.Load
	// Pacer says for how long resolutions pause, and Paced are the transactions of which they do.
	// Prepare makes them.
	Pacer *admission.Pacer
	Paced *admission.Members[txn.ID]
	// ManualTime, if not nil, says that no timer runs: a test tells the time. Nothing pauses then.
	ManualTime func() bool
	Limits
	// PushDelay is for how long writes wait for a transaction before its coordinator is asked.
	PushDelay time.Duration

	spans spanBudget
}

// Limits bound what is locked, and what waits for locks.
type Limits struct {
	// MaxBlockers is for how many transactions a read waits at once. With more it looks for the
	// rest afterwards.
	MaxBlockers int
	// MaxLocks is how many keys of a partition may be locked.
	MaxLocks int
	// MaxSpanLocks is how many spans of a partition may be locked, TotalSpanLocks of all
	// partitions.
	MaxSpanLocks, TotalSpanLocks int
	// MaxWaiters bounds the writes of a partition that wait, MaxWaiterBytes how large they are
	// together.
	MaxWaiters, MaxWaiterBytes int
}

// spanBudget bounds the span locks of all partitions that a node leads. Their memory is that of
// their bounds, and a record of some 300 bytes each.
type spanBudget struct {
	count, bytes atomic.Int64
	most         int64
}

// maxSpanLockBytes is how many bytes the bounds of all span locks of a node have together.
const maxSpanLockBytes = 16 << 20

// fits says whether so many more may be held. Partitions that ask at one moment may go beyond the
// bound together, by what one request holds each.
func (b *spanBudget) fits(count, bytes int) bool {
	return b.count.Load()+int64(count) <= b.most && b.bytes.Load()+int64(bytes) <= maxSpanLockBytes
}

// DefaultMaxBlockers is Config.MaxBlockers where nothing else is wanted.
const DefaultMaxBlockers = 256

// Prepare fills in what is left out of a Config. It is called once, before the first Init.
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

// since is the time that a metric wants.
func since(start time.Time) float64 { return time.Since(start).Seconds() }

// age is what transactions are ordered by. That of no transaction is the youngest.
type age struct {
	begun hlc.Timestamp
	id    txn.ID
}

func (a age) olderThan(b age) bool { return txn.Older(a.begun, a.id, b.begun, b.id) }
