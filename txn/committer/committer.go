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
	// maxBackground bounds the transactions that are resolved or aborted in the background at a
	// time; slotTime is how long a further transaction waits for a slot. A transaction that has
	// ended must not delay its caller because other transactions wait for a partition that does not
	// answer.
	maxBackground = 256
	slotTime      = 100 * time.Millisecond
	// backgroundTime bounds the time of this work for one transaction. Others find and resolve the
	// locks that are left.
	backgroundTime = 10 * time.Second
	// closeGrace is how long Close waits for background work before it cancels the work.
	closeGrace = time.Second
	// A transaction whose clock reading is below that of the youngest transaction so far, by at
	// most maxEarlier, is made the younger one. A greater distance means that the clocks were wrong
	// before.
	maxEarlier = time.Second
)

// Config configures a Committer.
type Config struct {
	// Sender is required. It is used until Close has returned.
	Sender Sender
	// Random returns random numbers, for ids and jitter; default math/rand/v2.
	Random func() uint64
	// Registry receives the metrics; nil keeps none.
	Registry metric.Registry
}

// Committer commits and aborts transactions. Its methods may be called from any goroutine.
type Committer struct {
	sender  Sender
	random  func() uint64
	metrics *metrics

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	// closing is closed when Close begins: no transaction is live from then on.
	closing chan struct{}
	// slots bounds the background work: a piece of work holds one slot.
	slots chan struct{}

	// narrow is set if locks are released only within the spans of the transaction's keys, since
	// the client's user may not write to all of a keyspace.
	narrow atomic.Bool

	mu struct {
		sync.Mutex
		closed bool
		// live are the transactions that may hold locks, and so send heartbeats.
		live map[*Transaction]struct{}
		// beating is set while the goroutine that sends heartbeats runs.
		beating bool
	}
	goroutines sync.WaitGroup

	// youngest is the beginning of the youngest transaction.
	youngest struct {
		sync.Mutex
		begun hlc.Timestamp
	}
}

// New makes a Committer. The caller closes the Committer after use.
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

// Close waits, for a second at most, until resolving has ended, and returns when nothing of the
// Committer runs any more. Close leaves the locks of transactions that have not ended; requests
// that meet these locks clean them up. It may be called more than once.
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
// before. The attempt sends heartbeats until it or ctx ends.
func (c *Committer) Begin(ctx context.Context) (*Transaction, error) {
	called := time.Now()
	now, age, err := c.sender.Now(ctx)
	if err != nil {
		return nil, err
	}
	// The age counts from the call: transactions that begin while this one waits for a node's clock
	// are younger.
	return c.attempt(ctx, c.age(age.Add(-time.Since(called))), now, new(attemptIDs)), nil
}

// Again begins another attempt of the transaction of t, which has ended. The new attempt is as old
// as the first one, and sends heartbeats until it or ctx ends.
func (t *Transaction) Again(ctx context.Context) (*Transaction, error) {
	now, _, err := t.c.sender.Now(ctx)
	if err != nil {
		return nil, err
	}
	next := t.c.attempt(ctx, t.ids.begun(t.c.sender, t.begun, now), now, t.ids)
	next.again = true
	return next, nil
}

// attempt returns an attempt of a transaction that began at begun.
func (c *Committer) attempt(
	ctx context.Context, begun, now hlc.Timestamp, f *attemptIDs,
) *Transaction {
	return &Transaction{c: c, life: ctx, id: f.next(c.random), begun: begun,
		started: hlc.Max(begun, now), ids: f}
}

// age returns the beginning of a transaction that begins now. The estimates come from several
// nodes' clocks, so a later estimate may be lower.
func (c *Committer) age(estimate hlc.Timestamp) hlc.Timestamp {
	c.youngest.Lock()
	defer c.youngest.Unlock()
	if last := c.youngest.begun; last.Wall-estimate.Wall < int64(maxEarlier) {
		estimate = hlc.Max(estimate, last.Next())
	}
	c.youngest.begun = estimate
	return estimate
}

// background runs f concurrently with the caller, with its own context. If no slot becomes free
// within slotTime, background drops f: others clean up.
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

// takeSlot waits for a slot, for up to slotTime.
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
