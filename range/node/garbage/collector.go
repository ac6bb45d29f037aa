package garbage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// Collector is the queue of garbage collection: partitions that were written to while this node led
// them, and may therefore have garbage, each with the time since which it waits. One worker takes
// those that have waited long enough, most garbage first. How long is enough is computed when the
// worker looks, so a change of a keyspace's window counts for partitions that already wait.
//
// Overwritten versions stay readable for the keyspace's window. So a partition has its turn a
// quarter of the window after it was first written to, and again until it holds only the newest
// versions, and none that expires. Then it leaves the queue.
type Collector struct {
	node     *hosted.Node
	interval time.Duration
	// pacer makes the worker pause after each collection, so that it takes at most a quarter of a
	// processor.
	pacer *admission.Pacer

	runs, versions, failures prometheus.Counter

	mu struct {
		sync.Mutex
		since map[*hosted.Replica]time.Time
	}
}

// New makes a Collector that looks for garbage at an interval.
func New(n *hosted.Node, interval time.Duration) *Collector {
	c := &Collector{node: n, interval: interval,
		pacer: admission.NewPacer(admission.Collection, nil),
		runs:  n.Metrics.Counter("gc_runs_total", "Garbage collections of a partition."),
		versions: n.Metrics.Counter("gc_versions_total",
			"Versions removed by garbage collection."),
		failures: n.Metrics.Counter("gc_failures_total", "Garbage collections that failed.")}
	c.mu.since = make(map[*hosted.Replica]time.Time)
	n.Metrics.GaugeOf("gc_pending_partitions", "Partitions that wait for garbage collection.",
		func() float64 { return float64(c.Waiting()) })
	return c
}

// Noticed is called for every batch applied in a group led here, and for every leadership won.
func (c *Collector) Noticed(h *hosted.Replica) {
	if h.Lists.Garbage.Load() || !h.Lists.Garbage.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	c.mu.since[h] = time.Now()
	c.mu.Unlock()
}

// delay returns how long a partition waits for its turn. On a disk without room it waits only as
// long as its versions have to stay.
func (c *Collector) delay(h *hosted.Replica) time.Duration {
	if c.node.DiskFull() {
		return 0
	}
	window := c.node.Table.Load().GCWindow(keys.KeyspaceID(h.Listed.Load().GetKeyspace()))
	return max(c.interval, window/4)
}

// Forget drops a replica that was removed.
func (c *Collector) Forget(h *hosted.Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.since, h)
}

// Waiting returns how many partitions wait.
func (c *Collector) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.since)
}

// candidate is a partition whose turn has come.
type candidate struct {
	h *hosted.Replica
	// garbage estimates the bytes of versions that are not the newest of a key, or expire: an upper
	// bound, since some of them may be too young to be removed.
	garbage uint64
}

// take returns the partitions whose turn has come, most garbage first, and drops those without
// garbage or not led here: a write, or a leadership won, brings them back.
func (c *Collector) take(now time.Time) []candidate {
	c.mu.Lock()
	var turns []*hosted.Replica
	for h, since := range c.mu.since {
		if now.Sub(since) >= c.delay(h) {
			turns = append(turns, h)
		}
	}
	c.mu.Unlock()
	var found []candidate
	for _, h := range turns {
		// Before the look: a later write puts the partition into the queue again.
		h.Lists.Garbage.Store(false)
		s := h.Replica.Stats()
		if !h.Leading.Load() || !h.Replica.GC().MayHaveGarbage() {
			c.forgetUnlessNoticed(h)
			continue
		}
		h.Lists.Garbage.Store(true)
		found = append(found, candidate{h,
			s.Bytes / max(s.Versions, 1) * min(s.Versions, s.Versions-s.LiveKeys+s.Expiring)})
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(b.garbage, a.garbage) })
	return found
}

func (c *Collector) forgetUnlessNoticed(h *hosted.Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !h.Lists.Garbage.Load() {
		delete(c.mu.since, h)
	}
}

// collectFullEvery is the interval of collections while the disk has no room.
const collectFullEvery = 10 * time.Second

// Run collects garbage until the context ends.
func (c *Collector) Run(ctx context.Context) {
	last := time.Now()
	for backoff.Sleep(ctx, min(c.interval, collectFullEvery)) == nil {
		if !c.node.DiskFull() && time.Since(last) < c.interval {
			continue
		}
		last = time.Now()
		for _, candidate := range c.take(time.Now()) {
			if ctx.Err() != nil {
				return
			}
			if !c.node.Health.Fit() {
				break
			}
			began := time.Now()
			c.collect(ctx, candidate.h)
			ended := time.Now()
			if c.pacer.Wait(ctx, ended, ended.Sub(began), admission.Low) != nil {
				return
			}
		}
	}
}

// gcTimeout bounds one partition's collection; the rest is left to its next turn.
const gcTimeout = 5 * time.Minute

func (c *Collector) collect(ctx context.Context, h *hosted.Replica) {
	n := c.node
	c.mu.Lock()
	if _, still := c.mu.since[h]; still {
		c.mu.since[h] = time.Now()
	}
	c.mu.Unlock()
	if h.Removed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, gcTimeout)
	defer cancel()
	result, err := h.Replica.GC().Collect(ctx, n.Clock.Now())
	c.runs.Inc()
	c.versions.Add(float64(result.Versions))
	if errors.Is(err, gc.ErrNoRoom) {
		return // continue when some of the removed data has given its room back
	}
	if err != nil {
		c.failures.Inc()
		if h.Leading.Load() && ctx.Err() == nil {
			n.Logger.Warn("garbage collection failed; it will be tried again", "error", err)
		}
	}
}
