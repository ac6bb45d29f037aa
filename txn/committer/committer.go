package committer

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

const (
	// maxBackground is how many transactions are resolved or aborted in the background at a time,
	// and slotTime how long one more waits until there are fewer: a transaction that has ended does
	// not keep its caller because others meet a partition that does not answer.
	maxBackground = 256
	slotTime      = 100 * time.Millisecond
	// backgroundTime is how long that may take. What is left then, others find and resolve.
	backgroundTime = 10 * time.Second
	// closeGrace is how long Close lets it go on.
	closeGrace = time.Second
	// maxEarlier is how much earlier than the youngest transaction so far one may seem to begin and
	// be taken for younger. If it is more, the clocks were wrong before.
	maxEarlier = time.Second
)

// Config configures a Committer.
type Config struct {
	// Sender is required. It is used until Close has returned.
	Sender Sender
	// Random gives random numbers, for ids and jitter; default math/rand/v2.
	Random func() uint64
	// Registry receives the metrics; nil keeps none.
	Registry metric.Registry
}

// Committer brings transactions to their end. Its methods may be called from any goroutine.
type Committer struct {
	sender  Sender
	random  func() uint64
	metrics *metrics

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// closing is closed when Close begins: nothing lives from then on.
	closing chan struct{}
	// slots bounds the background work.
	slots chan struct{}

	// narrow: locks are ended within the spans of the transaction's keys only, since the client's
	// user may not write to all of a keyspace.
	narrow atomic.Bool

	mu struct {
		sync.Mutex
		closed bool
		// live are the transactions that hold locks.
		live map[*Transaction]struct{}
		// beating: the goroutine that sends heartbeats runs.
		beating bool
	}
	goroutines sync.WaitGroup

	// youngest is when the youngest transaction began.
	youngest struct {
		sync.Mutex
		begun hlc.Timestamp
	}
}

// New makes a Committer. Close it after use.
func New(cfg Config) (*Committer, error) {
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	c := &Committer{
		sender: cfg.Sender, random: cfg.Random, metrics: m,
		closing: make(chan struct{}), slots: make(chan struct{}, maxBackground),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.live = make(map[*Transaction]struct{})
	return c, nil
}

// Close lets what is being resolved come to its end, for a second at most, and returns when nothing
// of the Committer runs any more. The locks of transactions that have not ended are left behind;
// others clean them up when they meet them. It may be called more than once.
func (c *Committer) Close() {
	c.mu.Lock()
	first := !c.mu.closed
	c.mu.closed = true
	clear(c.mu.live)
	if first {
		close(c.closing)
	}
	c.mu.Unlock()
	if !first {
		c.goroutines.Wait()
		return
	}
	grace := time.AfterFunc(closeGrace, c.cancel)
	c.goroutines.Wait()
	grace.Stop()
	c.cancel()
	c.metrics.unregister()
}

// Begin begins the first attempt of a transaction, which is younger than all that were begun here
// before. The attempt sends heartbeats until it ends, or ctx does.
func (c *Committer) Begin(ctx context.Context) (*Transaction, error) {
	called := time.Now()
	now, age, err := c.sender.Now(ctx)
	if err != nil {
		return nil, err
	}
	// It is as old as if the time had been known at once: those that begin while it waits for a
	// node to tell it are younger.
	return c.attempt(ctx, c.age(age.Add(-time.Since(called))), now, new(attemptIDs)), nil
}

// Again begins another attempt of a transaction of which t was one, and has ended; it is as old as
// the first. It sends heartbeats until it ends, or ctx does.
func (t *Transaction) Again(ctx context.Context) (*Transaction, error) {
	now, _, err := t.c.sender.Now(ctx)
	if err != nil {
		return nil, err
	}
	next := t.c.attempt(ctx, t.ids.begun(t.c.sender, t.begun, now), now, t.ids)
	next.again = true
	return next, nil
}

// attempt is an attempt of a transaction that began at begun.
func (c *Committer) attempt(
	ctx context.Context, begun, now hlc.Timestamp, f *attemptIDs,
) *Transaction {
	return &Transaction{c: c, life: ctx, id: f.next(c.random), begun: begun,
		started: hlc.Max(begun, now), ids: f}
}

// age is when a transaction begins that begins about now. Estimates of that come from several
// nodes, and a later one may be lower.
func (c *Committer) age(estimate hlc.Timestamp) hlc.Timestamp {
	c.youngest.Lock()
	defer c.youngest.Unlock()
	if last := c.youngest.begun; last.Wall-estimate.Wall < int64(maxEarlier) {
		estimate = hlc.Max(estimate, last.Next())
	}
	c.youngest.begun = estimate
	return estimate
}

// background runs f beside the caller, with a context of its own. If too much runs already, it
// waits for a moment, and then leaves it: what is left behind, others clean up.
func (c *Committer) background(f func(ctx context.Context)) {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return
	}
	c.goroutines.Add(1)
	c.mu.Unlock()
	if !c.takeSlot() {
		c.goroutines.Done()
		c.metrics.left.Inc()
		return
	}
	go func() {
		defer c.goroutines.Done()
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(c.ctx, backgroundTime)
		defer cancel()
		f(ctx)
	}()
}

// takeSlot waits for one of slots for as long as is reasonable.
func (c *Committer) takeSlot() bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(slotTime)
	defer timer.Stop()
	select {
	case c.slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-c.closing:
	}
	return false
}

// pause waits for about d. Its error is the context's.
func (c *Committer) pause(ctx context.Context, d time.Duration) error {
	d -= time.Duration(float64(d) / 2 * float64(c.random()>>11) / (1 << 53))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}
