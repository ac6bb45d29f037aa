package raftlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrClosed is returned, and reported for appends, once the log is closed.
var ErrClosed = errors.New("raft log is closed")

// ErrRemoved is returned when a replica is created with an id that is at or below a tombstone.
var ErrRemoved = errors.New("this replica was removed and cannot come back")

// Options configure a Log. The zero value of every field but OnAppended is usable.
type Options struct {
	// OnAppended is called by the append worker after each synced batch, with every append of it in
	// the order of submission, and the error with which all of them failed, if any. It must not
	// block on the log.
	OnAppended func(batch []*Append, err error)
	// MaxBatchBytes bounds the size of one synced batch, so that a flood of appends does not delay
	// the first of them for long. Default 4 MiB; a single larger append is a batch of its own.
	MaxBatchBytes int
	// TailBytes is how much of the applied log a group keeps in memory for followers that are a
	// little behind. Default 256 KiB.
	TailBytes int
	// Monotonic measures how long a write has been under way. Default: hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	Logger    *slog.Logger
	// Registerer takes the metrics; nil registers none.
	Registerer prometheus.Registerer
}

// Log is the raft log of all groups of a process.
type Log struct {
	db      *engine.Log
	options Options
	metrics *metrics

	mu struct {
		sync.Mutex
		groups map[keys.PartitionID]*Group
		// pending is what the append worker takes next. It is bounded by Raft's limits on what is
		// in flight per group, and by the owner, which lets in less while Pending is high.
		pending []*Append
		closed  bool
	}
	wake   *sync.Cond
	worker sync.WaitGroup
	// pending estimates how many bytes were submitted and not reported yet.
	pending atomic.Int64
	// writing is when the write under way began, on the monotonic clock; notWriting if there is
	// none.
	writing atomic.Int64
	// synced counts the synced writes; syncNanos is their total time in nanoseconds.
	synced    atomic.Uint64
	syncNanos atomic.Int64
}

const notWriting = math.MinInt64

// Open reads the identities of all groups and starts the append worker. The caller keeps the
// database, and closes it after Close.
func Open(db *engine.Log, options Options) (*Log, error) {
	if options.OnAppended == nil {
		return nil, errors.New("raftlog: OnAppended is required")
	}
	if options.MaxBatchBytes <= 0 {
		options.MaxBatchBytes = 4 << 20
	}
	if options.TailBytes <= 0 {
		options.TailBytes = 256 << 10
	}
	if options.Monotonic == nil {
		options.Monotonic = hlc.SystemMonotonic()
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{db: db, options: options}
	l.metrics = newMetrics(options.Registerer, func() float64 { return float64(l.pending.Load()) })
	l.wake = sync.NewCond(&l.mu)
	l.writing.Store(notWriting)
	l.mu.groups = make(map[keys.PartitionID]*Group)
	l.worker.Add(1)
	go l.run()
	return l, nil
}

// Writing returns how long the write under way has taken so far, for whatever reason; zero if there
// is none. Everything submitted since waits behind it.
func (l *Log) Writing() time.Duration {
	began := l.writing.Load()
	if began == notWriting {
		return 0
	}
	return time.Duration(l.options.Monotonic() - began)
}

// Synced returns how many writes were synced since the process started, and how many nanoseconds
// they took together.
func (l *Log) Synced() (writes uint64, nanos int64) { return l.synced.Load(), l.syncNanos.Load() }

// Pending estimates how many bytes of all groups were submitted and not reported yet.
func (l *Log) Pending() int64 { return l.pending.Load() }

// Close reports what is still pending as failed with ErrClosed, and stops the append worker.
func (l *Log) Close() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.wake.Broadcast()
	l.worker.Wait()
}

// Identities returns all replicas and tombstones found on disk, by group id.
func (l *Log) Identities() ([]Identity, error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{groupPrefix},
		UpperBound: []byte{groupPrefix + 1}})
	if err != nil {
		return nil, fmt.Errorf("listing raft groups: %w", err)
	}
	defer it.Close()
	var found []Identity
	for ok := it.First(); ok; {
		group, kind, valid := decodeGroupKey(it.Key())
		if !valid {
			return nil, fmt.Errorf("unknown key %x among the raft groups: %w", it.Key(), ErrCorrupt)
		}
		if kind == kindIdentity {
			value, err := it.ValueAndErr()
			if err != nil {
				return nil, fmt.Errorf("identity of group %s: %w", group, err)
			}
			id, err := decodeIdentity(group, value)
			if err != nil {
				return nil, fmt.Errorf("identity of group %s: %w", group, err)
			}
			found = append(found, id)
		}
		ok = it.SeekGE(appendGroupKey(nil, group, kindEnd))
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("listing raft groups: %w", err)
	}
	return found, nil
}

// Identity returns the identity of a group's replica, or its tombstone; false if neither is on
// disk.
func (l *Log) Identity(group keys.PartitionID) (Identity, bool, error) {
	return l.readIdentity(group)
}

func (l *Log) readIdentity(group keys.PartitionID) (Identity, bool, error) {
	value, closer, err := l.db.Get(appendGroupKey(nil, group, kindIdentity))
	if errors.Is(err, pebble.ErrNotFound) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("identity of group %s: %w", group, err)
	}
	defer closer.Close()
	id, err := decodeIdentity(group, value)
	if err != nil {
		return Identity{}, false, fmt.Errorf("identity of group %s: %w", group, err)
	}
	return id, true, nil
}

// Create makes the logs of new replicas, all with one sync. A replica that exists already with the
// same id is left as it is. If one of the ids is lower than that of an existing replica, or not
// above a tombstone, Create returns ErrRemoved and writes nothing.
func (l *Log) Create(identities ...Identity) error {
	batch := l.db.NewBatch()
	defer batch.Close()
	for _, id := range identities {
		if id.Replica == 0 || len(id.Voters) > maxVoters {
			return fmt.Errorf("group %s: a replica needs an id and at most %d voters", id.Group,
				maxVoters)
		}
		old, exists, err := l.readIdentity(id.Group)
		if err != nil {
			return err
		}
		if exists {
			if old.Removed && id.Replica <= old.Replica || id.Replica < old.Replica {
				return fmt.Errorf("group %s, replica %s: %w", id.Group, id.Replica, ErrRemoved)
			}
			if !old.Removed && id.Replica == old.Replica {
				continue
			}
			if !old.Removed {
				return fmt.Errorf("group %s: replica %s is still here, replica %s cannot be "+
					"created beside it", id.Group, old.Replica, id.Replica)
			}
		}
		if err := batch.Set(appendGroupKey(nil, id.Group, kindIdentity), encodeIdentity(id),
			nil); err != nil {
			return err
		}
	}
	if batch.Empty() {
		return nil
	}
	return l.db.Commit(batch, true)
}

// Remove turns replicas into tombstones and deletes their logs, in one synced batch. Their groups
// must have no append in flight; Remove closes them.
func (l *Log) Remove(ids ...Identity) error {
	if len(ids) == 0 {
		return nil
	}
	batch := l.db.NewBatch()
	defer batch.Close()
	for _, id := range ids {
		id.Removed = true
		if err := batch.DeleteRange(appendGroupKey(nil, id.Group, kindHardState),
			appendGroupKey(nil, id.Group, kindEnd), nil); err != nil {
			return err
		}
		if err := batch.Set(appendGroupKey(nil, id.Group, kindIdentity), encodeIdentity(id),
			nil); err != nil {
			return err
		}
	}
	if err := l.db.Commit(batch, true); err != nil {
		return fmt.Errorf("removing group %s and %d others: %w", ids[0].Group, len(ids)-1, err)
	}
	l.mu.Lock()
	for _, id := range ids {
		delete(l.mu.groups, id.Group)
	}
	l.mu.Unlock()
	return nil
}

// GiveBack frees the disk space of the entries of a removed group: see engine.Log.GiveBack. If the
// group is created anew meanwhile, it loses nothing.
func (l *Log) GiveBack(ctx context.Context, group keys.PartitionID) error {
	return l.db.GiveBack(ctx, keys.Span{Start: appendGroupKey(nil, group, kindHardState),
		End: appendGroupKey(nil, group, kindEnd)})
}
