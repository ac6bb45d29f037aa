package honest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/kv"
)

// Load writes and reads registers. Only one client uses a register. Its values increase: every
// acknowledged value must be there, and no value that was never written.
type Load struct {
	keyspace *kv.Keyspace
	clients  []*client
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

const registers = 50

type client struct {
	number int

	mu sync.Mutex
	// acknowledged and attempted are the highest such values of each register.
	acknowledged, attempted [registers]int
	latencies               *hdrhistogram.Histogram // in microseconds
	failures                int
	failure                 error
}

// Start starts a load with several clients. Each client makes a request every interval.
func Start(ctx context.Context, keyspace *kv.Keyspace, clients int, interval time.Duration) *Load {
	l := &Load{keyspace: keyspace}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range clients {
		c := &client{number: i, latencies: NewHistogram()}
		l.clients = append(l.clients, c)
		l.running.Go(func() { l.run(ctx, c, interval) })
	}
	return l
}

// timeout is the deadline of a request with its retries.
const timeout = 30 * time.Second

func (l *Load) run(ctx context.Context, c *client, interval time.Duration) {
	random := rand.New(rand.NewPCG(uint64(c.number), 1))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		r := random.IntN(registers)
		trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		began := time.Now()
		err := l.one(trying, c, r, random.IntN(2) == 0)
		took := time.Since(began)
		cancel()
		c.mu.Lock()
		_ = c.latencies.RecordValue(min(took.Microseconds(), c.latencies.HighestTrackableValue()))
		if err != nil {
			c.failures++
			c.failure = err
		}
		c.mu.Unlock()
	}
}

func (c *client) key(register int) []byte {
	return fmt.Appendf(nil, "client-%d-%d", c.number, register)
}

// one writes or reads a register.
func (l *Load) one(ctx context.Context, c *client, r int, write bool) error {
	if !write {
		return l.check(ctx, c, r)
	}
	c.mu.Lock()
	c.attempted[r]++
	value := c.attempted[r]
	c.mu.Unlock()
	if _, err := l.keyspace.Put(ctx, c.key(r), strconv.AppendInt(nil, int64(value), 10)); err != nil {
		return err
	}
	c.mu.Lock()
	c.acknowledged[r] = value
	c.mu.Unlock()
	return nil
}

// ErrLost says that an acknowledged value is missing, or that a value is there that was never
// written.
var ErrLost = errors.New("an acknowledged write is lost")

// check reads a register. Only its client writes it, one write at a time.
func (l *Load) check(ctx context.Context, c *client, r int) error {
	pair, err := l.keyspace.Get(ctx, c.key(r))
	value := 0
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return err
	default:
		if value, err = strconv.Atoi(string(pair.Value)); err != nil {
			return fmt.Errorf("%w: %s holds %q", ErrLost, c.key(r), pair.Value)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if value < c.acknowledged[r] || value > c.attempted[r] {
		return fmt.Errorf("%w: %s holds %d, acknowledged is %d, attempted %d", ErrLost, c.key(r), value,
			c.acknowledged[r], c.attempted[r])
	}
	return nil
}

// Measured has the measurements since the last call of Measure.
type Measured struct {
	Requests, Failures int
	// Failure is one of the failures.
	Failure       error
	P50, P99, Max time.Duration
	// Latencies has the latencies of all requests, in microseconds.
	Latencies *hdrhistogram.Histogram
}

// NewHistogram returns a histogram for latencies in microseconds, with a precision of three digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (10 * timeout).Microseconds(), 3)
}

// Quantile returns a quantile of a histogram: 99 is the 99th percentile.
func Quantile(h *hdrhistogram.Histogram, percent float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(percent)) * time.Microsecond
}

// Measure returns the measurements since the last call.
func (l *Load) Measure() (m Measured) {
	m.Latencies = NewHistogram()
	for _, c := range l.clients {
		c.mu.Lock()
		m.Latencies.Merge(c.latencies)
		m.Failures += c.failures
		if c.failure != nil && (m.Failure == nil || errors.Is(c.failure, ErrLost)) {
			m.Failure = c.failure
		}
		c.latencies.Reset()
		c.failures, c.failure = 0, nil
		c.mu.Unlock()
	}
	m.Requests = int(m.Latencies.TotalCount())
	m.P50, m.P99 = Quantile(m.Latencies, 50), Quantile(m.Latencies, 99)
	m.Max = Quantile(m.Latencies, 100)
	return m
}

// Stop ends the load.
func (l *Load) Stop() {
	l.cancel()
	l.running.Wait()
}

// Verify reads all registers after Stop. The keyspace may belong to another client.
func (l *Load) Verify(ctx context.Context, keyspace *kv.Keyspace) error {
	l.keyspace = keyspace
	for _, c := range l.clients {
		for r := range registers {
			if err := l.check(ctx, c, r); err != nil {
				return err
			}
		}
	}
	return nil
}
