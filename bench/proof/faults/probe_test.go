package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Probe writes (or reads) one key of every partition again and again. It records the longest time
// between two successes: the pause that a client of the partition notices.
type Probe struct {
	// Read: the probe reads the keys instead of writing them, after the first write.
	Read     bool
	store    *Store
	interval time.Duration
	keys     []string // by hash partition
	group    sync.WaitGroup
	cancel   context.CancelFunc
	still    process.Standstill

	mu struct {
		sync.Mutex
		last   []time.Time
		worst  []time.Duration
		errors []error
		// failures is the number of failed operations, and failure the last error.
		failures int
		failure  error
	}
}

// probeTimeout is the deadline of one operation of a probe. The next operation continues the
// measurement of the same pause.
const probeTimeout = 30 * time.Second

// NewProbe finds a key in each of n hash partitions.
func NewProbe(store *Store, n int, interval time.Duration) *Probe {
	p := &Probe{store: store, interval: interval, keys: fleet.PartitionKeys(n)}
	p.mu.last = make([]time.Time, n)
	p.mu.worst = make([]time.Duration, n)
	p.mu.errors = make([]error, n)
	return p
}

// Start starts the probe, and returns when every partition has answered once.
func (p *Probe) Start(ctx context.Context) error {
	for hash, key := range p.keys {
		if err := p.store.Put(ctx, key, "begin"); err != nil {
			return fmt.Errorf("probe of partition %d: %w", hash, err)
		}
		p.mu.last[hash] = time.Now()
	}
	ctx, p.cancel = context.WithCancel(ctx)
	for hash := range p.keys {
		p.group.Go(func() { p.one(ctx, hash) })
	}
	p.group.Go(func() { p.still.Watch(ctx) })
	return nil
}

// Still returns the longest time since Reset for which this process itself did not run.
func (p *Probe) Still() time.Duration { return p.still.Longest() }

func (p *Probe) one(ctx context.Context, hash int) {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		write, cancel := context.WithTimeout(ctx, probeTimeout)
		var err error
		if p.Read {
			_, err = p.store.Get(write, p.keys[hash])
		} else {
			err = p.store.Put(write, p.keys[hash], fmt.Sprint(n))
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		p.mu.Lock()
		if err != nil {
			p.mu.errors[hash] = err
			p.mu.failures, p.mu.failure = p.mu.failures+1, err
		} else {
			p.mu.worst[hash] = max(p.mu.worst[hash], now.Sub(p.mu.last[hash]))
			p.mu.last[hash] = now
			p.mu.errors[hash] = nil
		}
		p.mu.Unlock()
	}
}

// Stop ends the probe.
func (p *Probe) Stop() {
	p.cancel()
	p.group.Wait()
}

// Failures returns the number of failed operations since Start, and the last error.
func (p *Probe) Failures() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failures, p.mu.failure
}

// Reset drops the pauses so far. A pause that is going on counts with its whole length when it
// ends.
func (p *Probe) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.mu.worst)
	p.still.Reset()
}

// Pauses returns the longest pauses since Reset, by hash partition. A pause that is going on counts
// with its length so far.
func (p *Probe) Pauses() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	pauses := slices.Clone(p.mu.worst)
	for hash, last := range p.mu.last {
		pauses[hash] = max(pauses[hash], now.Sub(last))
	}
	return pauses
}

// AllAnswered returns nil if every partition has answered an operation after t.
func (p *Probe) AllAnswered(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for hash, last := range p.mu.last {
		if !last.After(t) {
			return fmt.Errorf("partition %d has not answered a write for %v (last error: %v)", hash,
				time.Since(last).Round(time.Millisecond), p.mu.errors[hash])
		}
	}
	return nil
}
