package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// feedValue is the size of the values that feeds are measured with, in bytes.
const feedValue = 100

// version is one version of a key.
type version struct {
	key string
	at  kv.Timestamp
}

// feedLedger compares the acknowledgements of writes with the changes in a feed. It is safe for
// concurrent use.
type feedLedger struct {
	mu sync.Mutex
	// open has acknowledged versions that the feed has not delivered yet. early has delivered
	// versions that are not acknowledged yet.
	open, early map[version]struct{}
	// acked is the number of acknowledged versions, and last the highest one. unknown is the number
	// of writes that ended with an error; their versions may exist.
	acked, unknown int
	last           kv.Timestamp
	lastErr        error
	progress       kv.Timestamp
	wrong          []string
}

func newFeedLedger() *feedLedger {
	return &feedLedger{open: make(map[version]struct{}), early: make(map[version]struct{})}
}

// mostWrong bounds the number of reported errors.
const mostWrong = 10

func (l *feedLedger) wrongLocked(format string, arguments ...any) {
	if len(l.wrong) < mostWrong {
		l.wrong = append(l.wrong, fmt.Sprintf(format, arguments...))
	}
}

// acknowledged notes the end of a write of some keys.
func (l *feedLedger) acknowledged(keys []string, at kv.Timestamp, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unknown += len(keys)
		l.lastErr = err
		return
	}
	l.acked += len(keys)
	if l.last.Less(at) {
		l.last = at
	}
	for _, key := range keys {
		v := version{key, at}
		if _, has := l.early[v]; has {
			delete(l.early, v)
		} else if l.open[v] = struct{}{}; at.LessEq(l.progress) {
			l.missingLocked(v)
		}
	}
}

// advance notes the changes that a feed has delivered up to a progress.
func (l *feedLedger) advance(told []kv.Change, to kv.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range told {
		v := version{string(c.Key), c.Timestamp}
		if _, has := l.open[v]; has {
			delete(l.open, v)
		} else {
			l.early[v] = struct{}{}
		}
	}
	l.progress = to
	for v := range l.open {
		if v.at.LessEq(to) {
			l.missingLocked(v)
		}
	}
}

func (l *feedLedger) missingLocked(v version) {
	delete(l.open, v)
	l.wrongLocked("%s was written at %s, which was acknowledged, and the feed is at %s without it",
		v.key, v.at, l.progress)
}

// report returns the result, when no write is under way any more and the feed has delivered the
// last change.
func (l *feedLedger) report() (acked, unknown int, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.open); n > 0 {
		l.wrongLocked("%d acknowledged writes are not told, as of %s", n, l.progress)
	}
	if n := len(l.early); n > l.unknown {
		l.wrongLocked("%d changes are told that were not acknowledged, and only %d writes failed", n,
			l.unknown)
	}
	return l.acked, l.unknown, l.wrong
}

// highest returns the highest acknowledged version.
func (l *feedLedger) highest() kv.Timestamp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// count returns the number of acknowledged versions.
func (l *feedLedger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// feedWriters write random keys, at a given rate if the machine is fast enough.
type feedWriters struct {
	keyspace *kv.Keyspace
	ledger   *feedLedger
	// writers is the number of goroutines; each makes one write at a time. A write has batch keys
	// of a partition. One of deletes writes deletes its keys; 0: no write does.
	writers, batch, deletes int
	rate                    float64
	// keys has the keys of each partition.
	keys [][]string
}

// feedKeys groups keys by partition. It keeps only partitions with enough keys for a batch.
func (e *environment) feedKeys(ks *kv.Keyspace, n, batch int) (keys [][]string) {
	e.Helper()
	parts := make(map[uint64][]string)
	for i := range n {
		key := fmt.Sprintf("f%07d", i)
		id, err := ks.PartitionOf(e.ctx, []byte(key))
		e.must(err, "find the partition of a key")
		parts[id] = append(parts[id], key)
	}
	for _, part := range parts {
		if len(part) >= batch {
			keys = append(keys, part)
		}
	}
	if len(keys) == 0 {
		e.Fatalf("no partition has the keys of a batch of %d", batch)
	}
	return keys
}

// start starts the writers. stop returns when no write is under way any more.
func (w *feedWriters) start(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	var next atomic.Int64
	began, interval := time.Now(), float64(time.Second)*float64(w.batch)/w.rate
	for number := range w.writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(number), 26))
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				n := next.Add(1) - 1
				timer.Reset(time.Until(began.Add(time.Duration(float64(n) * interval))))
				select {
				case <-running.Done():
					return
				case <-timer.C:
				}
				w.write(ctx, n, random)
			}
		})
	}
	return func() { cancel(); writing.Wait() }
}

// write writes once.
func (w *feedWriters) write(ctx context.Context, n int64, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	part := w.keys[random.IntN(len(w.keys))]
	first := random.IntN(len(part))
	value := make([]byte, feedValue)
	copy(value, fmt.Sprintf("write %d", n))
	if w.batch == 1 && w.deletes == 0 {
		at, err := w.keyspace.Put(ctx, []byte(part[first]), value)
		w.ledger.acknowledged(part[first:first+1], at, err)
		return
	}
	takes := w.deletes > 0 && random.IntN(w.deletes) == 0
	batch, keys := w.keyspace.Batch(), make([]string, w.batch)
	for i := range keys {
		keys[i] = part[(first+i)%len(part)]
		if takes {
			batch.Delete([]byte(keys[i]))
		} else {
			batch.Put([]byte(keys[i]), value)
		}
	}
	at, err := batch.Commit(ctx)
	w.ledger.acknowledged(keys, at, err)
}
