package gc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Replica is what a Collector needs of its replica.
type Replica interface {
	ID() keys.PartitionID
	Descriptor() *clusterpb.Partition
	Stats() storage.Stats
	// Threshold returns the garbage collection threshold.
	Threshold() hlc.Timestamp
	// BeginCollection is called at the beginning of every collection.
	BeginCollection()
	// MayCollect reports whether the entries of a collection find disk space.
	MayCollect() bool
	// Propose evaluates an entry in its turn, with no write pending, and waits until the entry is
	// applied here. Nothing is proposed if evaluate returns false. When ctx ends first, the entry
	// may still take effect.
	Propose(ctx context.Context, kind proposal.Kind,
		evaluate func(Evaluation) (propose bool, err error)) (proposed bool, err error)
	// Enter announces a user of the state database, until Exit; false: the replica is closed.
	Enter() bool
	Exit()
	// Passed reports that every clock has passed a timestamp.
	Passed(ts hlc.Timestamp) bool
}

// Evaluation is the evaluation of one entry. It is valid until evaluate returns.
type Evaluation interface {
	// Descriptor returns the partition's descriptor before the entry.
	Descriptor() *clusterpb.Partition
	// Entry returns the part of the entry that evaluate fills.
	Entry() *proposal.Entry
	// Batch returns the batch of the entry.
	Batch() *engine.StateBatch
	// Removed accounts for versions that the batch removes. If sole is set, nothing else is evaluated
	// until the fate of the entry is known.
	Removed(garbage *mvcc.GarbageResult, sole bool)
}

// Config configures New.
type Config struct {
	Replica Replica
	State   *engine.State
	Clock   *hlc.Clock
	Metrics *Metrics
	// Resolver, if not nil, releases the locks of committed transactions in other partitions.
	// Without it the records of transactions that have had locks stay for ever.
	Resolver txn.Resolver
	// DiskFull, if not nil, reports that there is no room for writes at present.
	DiskFull func() bool
	// Window is how long overwritten versions stay readable; negative: for ever.
	Window time.Duration
	// Chunk bounds what one removal entry holds, and how much is read for it. Zero: a default.
	Chunk mvcc.GarbageLimits
}

// kept says what stays readable. It does not change.
type kept struct {
	// window is the time for which versions stay; negative: nothing is collected.
	window time.Duration
	// protected is the timestamp whose versions stay, whatever the window says; zero: none.
	protected hlc.Timestamp
}

// limit lowers a threshold to the protected timestamp.
//
// INVARIANT: no threshold is raised above the protected timestamp.
func (k *kept) limit(threshold hlc.Timestamp) hlc.Timestamp {
	if !k.protected.IsZero() {
		return hlc.Min(threshold, k.protected)
	}
	return threshold
}

// Collector collects the garbage of one replica's partition while that replica leads.
type Collector struct {
	Config
	// kept is never nil.
	kept atomic.Pointer[kept]
	// progress says how far collections have come. Only the running collection may touch it.
	progress progress
	expiries expiries

	mu struct {
		sync.Mutex
		// running is set while Collect runs.
		running bool
		// mayHaveRecords is set if there may be records to look at. recordsSet counts the batches
		// of entries that have set records.
		mayHaveRecords bool
		recordsSet     uint64
	}
}

// progress says which span collections have looked through completely, and at which threshold.
// Without a higher threshold there is nothing more to find in the same span: later writes are above
// it.
type progress struct {
	threshold  hlc.Timestamp
	generation uint64
}

// New returns a Collector.
func New(c Config) *Collector {
	g := &Collector{Config: c}
	if g.Chunk == (mvcc.GarbageLimits{}) {
		g.Chunk = defaultChunk
	}
	g.SetKept(c.Window, hlc.Timestamp{})
	return g
}

// defaultChunk bounds what one removal entry holds, and how much is read for it.
var defaultChunk = mvcc.GarbageLimits{Versions: 2000, Bytes: 16 << 20, Scanned: 20_000}

// Result says what a collection did.
type Result struct {
	// Threshold is the lowest timestamp that can still be read.
	Threshold hlc.Timestamp
	// Versions and Bytes count what was removed.
	Versions, Bytes uint64
	// Swept is set if all versions were looked through, because some might have been removable.
	Swept bool
}

var errClosed = errors.New("the replica is closed")

// ErrNoRoom is returned if there is too little room for the entries of garbage collection. What was
// removed before has given its room back, or will.
var ErrNoRoom = errors.New("no disk space for the entries of garbage collection")

// MayHaveGarbage reports whether there may be something to collect, now or when it is older or has
// expired.
func (g *Collector) MayHaveGarbage() bool {
	s := g.Replica.Stats()
	g.mu.Lock()
	defer g.mu.Unlock()
	return s.Versions > s.LiveKeys || s.Expiring > 0 || g.mu.mayHaveRecords
}

// SetKept sets how long overwritten versions stay readable, negative: for ever, and the timestamp
// whose versions stay readable, whatever the window says: a consumer of the partition's changes has
// read no further. Zero: none. A collection never sees the window of one call and the timestamp of
// another: a consumer may be protected only because of a short window that has become longer.
func (g *Collector) SetKept(window time.Duration, protected hlc.Timestamp) {
	g.kept.Store(&kept{window, protected})
}

// RecordsFound notes whether a state that was opened, or replaced, has transaction records.
func (g *Collector) RecordsFound(any bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.mayHaveRecords = any
}

// RecordsSet notes that applied entries have set records.
func (g *Collector) RecordsSet() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.mayHaveRecords = true
	g.mu.recordsSet++
}

// WillExpire notes when a version that is written expires; 0: never.
func (g *Collector) WillExpire(at int64) { g.expiries.wrote(at) }

// ForgetExpiries is called at the end of a leadership epoch: later writes may go unnoticed.
func (g *Collector) ForgetExpiries() { g.expiries.forget() }
