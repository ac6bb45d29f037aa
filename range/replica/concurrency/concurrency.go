package concurrency

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/txn"
)

// The lock table's types, as this package uses them.
type (
	Lock        = locks.Lock[*Waiter]
	State       = locks.State
	Transaction = locks.Transaction[*Waiter]
)

// Owner is what a manager's timers call: a replica, without its lock held.
type Owner interface {
	// ReevaluateWaiters is called when it is time for Manager.Reevaluate, after Manager.Ticked.
	ReevaluateWaiters()
	// ContinueResolution is called when a pause is over: if Manager.EndPause says so, the next
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
	// PushDelay is for how long writes wait for a transaction before its coordinator is asked.
	PushDelay time.Duration

	spans spanBudget
}

// DefaultMaxBlockers is Config.MaxBlockers where nothing else is wanted.
const DefaultMaxBlockers = 256

// Manager is the concurrency control of one partition. Its owner's lock guards it. It must not be
// copied after Init.
type Manager struct {
	config    *Config
	owner     Owner
	partition keys.PartitionID
	keyspace  uint32

	// held is the number of locks in the table, of keys and of spans.
	held atomic.Int64
	// table follows the engine on every replica (Apply); what is in flight, volatile, or waits is
	// of the leader.
	table locks.Table[*Waiter]
	// counted is what was counted of the table.
	counted counted
	// writes are what is known of the writes that wait, besides the table.
	writes waitingWrites
	// reads are the reads that wait.
	reads map[*readWait]struct{}
	// queues are the transactions that anything waits for, or did until a moment ago.
	queues map[*Transaction]*waitQueue
	// pushes numbers the pushes that were sent.
	pushes uint64
	// resolutions are of the transactions whose locks are being released because their outcome is
	// known.
	resolutions map[*Transaction]*Resolution
	// coordinated is about transactions of which this partition is the coordinator; nil: nothing is
	// remembered.
	coordinated *coordinated
	// alarm is nil as long as nothing has waited.
	alarm *alarm
}

// waitingWrites is what is known of the writes that wait.
type waitingWrites struct {
	// order numbers them as they come, and bytes is how large those are that still wait.
	order uint64
	bytes int
	// attempts are the writes that have waited and are not finished (attempts.go), by request.
	attempts map[mvcc.RequestID]*History
}

// coordinated is what the coordinator of transactions remembers of them beside their records.
type coordinated struct {
	// wanted are transactions for whose locks anything waits, or did, somewhere.
	wanted map[txn.ID]struct{}
	// held are transactions whose timestamps are held, and until when (held_timestamp.go).
	held map[txn.ID]time.Time
	// aborted are the latest transactions that were aborted on request (aborted_on_request.go).
	aborted []txn.Info
}

func (m *Manager) coordinator() *coordinated {
	if m.coordinated == nil {
		m.coordinated = new(coordinated)
	}
	return m.coordinated
}

// Init makes a zero Manager that of a partition.
func (m *Manager) Init(c *Config, owner Owner, partition keys.PartitionID, keyspace uint32) {
	m.config, m.owner, m.partition, m.keyspace = c, owner, partition, keyspace
}

// Prepare fills in what is left out of a Config. It is called once, before the first Init.
func (c *Config) Prepare() {
	if c.MaxBlockers == 0 {
		c.MaxBlockers = DefaultMaxBlockers
	}
	c.spans.most = int64(c.TotalSpanLocks)
	c.Pacer = admission.NewPacer(admission.Resolution, c.Load)
	c.Paced = admission.NewMembers[txn.ID](maxPaced)
}

// Held is the number of locks that there are, of keys and of spans. It is an atomic: the owner's
// lock need not be held.
func (m *Manager) Held() int64 { return m.held.Load() }

// Work is what is to be done when the owner's lock is released.
type Work struct {
	// Reads look again.
	Reads []*Read
	// ExpiredReads and ExpiredWrites are answered: their time is up. (Conflict says over what.)
	ExpiredReads  []*Read
	ExpiredWrites []*Waiter
	// Pushes are to be sent, and their answers brought back (Answered).
	Pushes []Push
	// Resolve are transactions whose outcome is known: StartResolution is to be called.
	Resolve []*Transaction
}

// GiveUp takes out all that waits, in the order in which it came, and forgets all that is in flight
// and volatile: a leadership epoch ends.
func (m *Manager) GiveUp() (writes []*Waiter, reads []*Read) {
	writes = m.table.Drain()
	m.Leave(writes)
	for _, w := range writes {
		m.EndAttempt(w.Request, w.History)
	}
	for l := range m.reads {
		m.leaveRead(l)
		reads = append(reads, l.read)
	}
	m.disarm()
	for _, x := range m.resolutions {
		m.endResolution(x)
	}
	m.writes.bytes = 0
	m.reads, m.queues, m.resolutions = nil, nil, nil
	if c := m.coordinated; c != nil {
		c.wanted, c.held = nil, nil // what was aborted stays so
	}
	m.table.DropInFlight()
	m.count()
	return writes, reads
}

// Close takes the locks out of what is counted: the owner is closed.
func (m *Manager) Close() { m.uncount() }

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
