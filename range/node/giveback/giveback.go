// Package giveback returns the room of removed data to a disk without room.
//
// Garbage collection removes versions by entries of a partition's log. The removed data stays in
// the tables of the state, and the entries in the files of the logs, until more is written; but a
// disk without room takes no more writes. So the Worker of a node is told what every replica there
// has removed. While the disk has no room it compacts the spans of these partitions, one after the
// other, and makes the logs return what was truncated.
//
// It writes only when something was removed or truncated: a full disk that nobody uses rests.
//
// The package imports nothing of the node.
package giveback

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// State is what the Worker needs of the state's engine: see engine.State.
type State interface {
	AsyncFlush() error
	GiveBack(ctx context.Context, span keys.Span) error
}

// Log is what the Worker needs of the logs: see engine.Log and raftlog.Log.
type Log interface {
	Reclaim() error
	GiveBack(ctx context.Context, group keys.PartitionID) error
}

// Config configures a Worker. All fields must be set.
type Config struct {
	State State
	Log   Log
	// Full reports whether the disk has no room.
	Full func() bool
	// Spans returns the spans of state keys of a partition; none if there is no replica of it here.
	Spans func(id keys.PartitionID) []keys.Span
	// Truncations counts the truncations of logs since the process started.
	Truncations func() uint64
	// StepBytes is the size of applied removals after which their partition is compacted. It is
	// also compacted when no removal has come for a moment. At least 1.
	StepBytes int64
	// GivenBack is called after each completed compaction.
	GivenBack func()
	Logger    *slog.Logger
}

const (
	// lookEvery is the interval at which the Worker looks for work.
	lookEvery = time.Second
	// workTimeout bounds the compaction of one partition; the rest is left to its next turn.
	workTimeout = time.Minute
	// firstRest and longestRest bound the pause after a compaction that found no room. The pause
	// doubles each time.
	firstRest, longestRest = 2 * time.Second, time.Minute
)

// Worker gives room back. Its methods are safe for concurrent use, and only Run blocks.
type Worker struct {
	config Config

	mu struct {
		sync.Mutex
		// removed maps each partition to the bytes of removal entries since its last compaction.
		// There is at most one element for each replica of the node.
		removed map[keys.PartitionID]int64
		// logs are the groups whose logs were removed while the disk was full.
		logs map[keys.PartitionID]struct{}
	}

	// The following fields belong to the goroutine of Run. flushed is set if the state was flushed
	// since the disk became full.
	flushed     bool
	truncations uint64
	seen        map[keys.PartitionID]int64
	rest        time.Duration
	restUntil   time.Time
}

// New makes a worker.
func New(c Config) *Worker {
	w := &Worker{config: c}
	w.mu.removed = make(map[keys.PartitionID]int64)
	w.mu.logs = make(map[keys.PartitionID]struct{})
	return w
}

// Removed notes that an entry of that many bytes was applied which removes data of a partition.
func (w *Worker) Removed(id keys.PartitionID, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.removed[id] += bytes
}

// RemovedLogs notes that the logs of groups were removed.
func (w *Worker) RemovedLogs(ids ...keys.PartitionID) {
	if !w.config.Full() {
		return // the log compacts itself with later writes
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		w.mu.logs[id] = struct{}{}
	}
}

// Forget notes that there is no replica of a partition here any more.
func (w *Worker) Forget(id keys.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.removed, id)
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look(ctx)
		}
	}
}

// look does the work that is due.
func (w *Worker) look(ctx context.Context) {
	if !w.config.Full() {
		w.flushed, w.seen, w.rest, w.restUntil = false, nil, 0, time.Time{}
		w.mu.Lock()
		clear(w.mu.logs)
		w.mu.Unlock()
		return
	}
	if !w.flushed && w.anyRemoved() {
		// The logs can be truncated up to what is durable in the state. Before something is removed
		// a flush gives nothing back: data in memory costs no room if its keyspace is dropped.
		w.flushed = true
		w.report("flushing the state", w.config.State.AsyncFlush())
	}
	if n := w.config.Truncations(); n != w.truncations {
		w.truncations = n
		w.report("giving back what was truncated of the logs", w.config.Log.Reclaim())
	}
	for _, id := range w.removedLogs() {
		if ctx.Err() != nil || time.Now().Before(w.restUntil) {
			return
		}
		w.giveBackLog(ctx, id)
	}
	for id, bytes := range w.due() {
		if ctx.Err() != nil || time.Now().Before(w.restUntil) {
			return
		}
		w.giveBack(ctx, id, bytes)
	}
}

func (w *Worker) anyRemoved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.removed) > 0
}

// due returns the partitions whose turn it is, and how much of each was removed.
func (w *Worker) due() map[keys.PartitionID]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	due, seen := make(map[keys.PartitionID]int64), make(map[keys.PartitionID]int64)
	for id, bytes := range w.mu.removed {
		if bytes >= w.config.StepBytes || bytes == w.seen[id] {
			due[id] = bytes
		}
		seen[id] = bytes
	}
	w.seen = seen
	return due
}

func (w *Worker) removedLogs() []keys.PartitionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.mu.logs))
}

// giveBackLog compacts the tables that have the entries of a removed log.
func (w *Worker) giveBackLog(ctx context.Context, id keys.PartitionID) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	err := w.config.Log.GiveBack(ctx, id)
	if w.foundNoRoom(err) {
		return
	}
	w.report("giving back the log of a partition that was removed", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.logs, id)
}

// foundNoRoom begins a pause if a compaction found no room.
func (w *Worker) foundNoRoom(err error) bool {
	if !errors.Is(err, engine.ErrNoRoom) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	w.rest = min(max(firstRest, 2*w.rest), longestRest)
	w.restUntil = time.Now().Add(w.rest)
	return true
}

// giveBack compacts the spans of a partition.
func (w *Worker) giveBack(ctx context.Context, id keys.PartitionID, bytes int64) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	for _, span := range w.config.Spans(id) {
		err := w.config.State.GiveBack(ctx, span)
		if w.foundNoRoom(err) {
			return
		}
		if err != nil {
			w.report("giving back what was removed from a partition", err)
			return
		}
	}
	w.rest = 0
	w.config.GivenBack()
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.mu.removed[id] - bytes; left > 0 {
		w.mu.removed[id] = left
	} else {
		delete(w.mu.removed, id)
	}
}

func (w *Worker) report(doing string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.config.Logger.Warn(doing+" failed; it will be tried again", "error", err)
	}
}
