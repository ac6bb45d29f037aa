package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are recorded in microseconds with three significant digits, up to an hour.
const (
	histogramLowest  = 1
	histogramHighest = int64(time.Hour / time.Microsecond)
	histogramDigits  = 3
)

// errorPause prevents a busy loop of a client whose operations fail at once.
const errorPause = 10 * time.Millisecond

// failure is one class of errors of one kind of operation.
type failure struct {
	count   uint64
	example string
}

// record has one client's measurements of one kind of operation. Only the client's goroutine uses
// it until the run has ended.
type record struct {
	latency   *hdrhistogram.Histogram // made at the first use: few clients do all kinds
	inWindow  uint64                  // successes that ended inside the window
	rows      uint64                  // rows of scans that ended inside the window
	max       time.Duration
	failures  map[string]*failure
	failCount uint64
}

// phases of a run, in order.
const (
	phaseWarmUp int32 = iota
	phaseMeasure
	phaseOver
)

// run is the state that all clients share.
type run struct {
	cfg      Config
	target   Target
	values   *values
	chooser  chooser
	inserted *insertCounter
	phase    atomic.Int32
	// transactions is set instead of target, values, chooser and inserted if the operations are
	// transactions.
	transactions *transactionRun
}

// client is one closed loop of operations.
type client struct {
	run     *run
	random  *rand.Rand
	records [kinds]record
	// ctx limits the duration of operations. It is renewed when half of its time is over, so that an
	// operation needs no context of its own.
	ctx    context.Context
	cancel context.CancelFunc
	renew  time.Time

	// The progress report reads these fields while the client runs.
	live struct {
		ops, errors, micros atomic.Uint64
	}
}

// operation is one drawn operation.
type operation struct {
	kind   Kind
	number uint64
	key    []byte
	value  []byte
	rows   int
	// transact is set instead of the following fields if the operation is a transaction.
	transact func(ctx context.Context) error
}

func (c *client) draw() operation {
	r := c.run
	if r.transactions != nil {
		return r.transactions.draw(c.random)
	}
	op := operation{kind: r.cfg.Workload.draw(c.random)}
	if op.kind == Insert {
		op.number = r.inserted.take()
	} else {
		op.number = r.chooser.choose(c.random)
	}
	// Each operation gets a new key: the target may keep it during the call, and a call may return
	// early.
	op.key = appendKey(make([]byte, 0, len(r.cfg.KeyPrefix)+keyDigits), r.cfg.KeyPrefix, op.number)
	switch op.kind {
	case Update, Insert, ReadModifyWrite:
		op.value = r.values.draw(c.random)
	case Scan:
		op.rows = r.cfg.Workload.rows(c.random)
	}
	return op
}

func (c *client) execute(op operation) (rows int, err error) {
	if op.transact != nil {
		return 0, op.transact(c.ctx)
	}
	switch op.kind {
	case Read:
		return 0, c.run.target.Get(c.ctx, op.key)
	case Update:
		return 0, c.run.target.Put(c.ctx, op.key, op.value)
	case Insert:
		err = c.run.target.Put(c.ctx, op.key, op.value)
		c.run.inserted.answered(op.number)
		return 0, err
	case Scan:
		return c.run.target.Scan(c.ctx, op.key, op.rows)
	case ReadModifyWrite:
		if err := c.run.target.Get(c.ctx, op.key); err != nil {
			return 0, err
		}
		return 0, c.run.target.Put(c.ctx, op.key, op.value)
	}
	return 0, fmt.Errorf("unknown kind of operation %d", int(op.kind))
}

// loop runs until the phase is over or ctx ends. It waits for an operation that is under way.
func (c *client) loop(ctx context.Context) {
	defer func() {
		if c.cancel != nil {
			c.cancel()
		}
	}()
	for ctx.Err() == nil {
		began := c.run.phase.Load()
		if began == phaseOver {
			return
		}
		op := c.draw()
		start := time.Now()
		if c.cancel == nil || start.After(c.renew) {
			c.renewContext(ctx, start)
		}
		rows, err := c.execute(op)
		elapsed := time.Since(start)
		if err != nil && ctx.Err() != nil {
			return // the run was stopped: this is not an error of the store
		}
		c.account(op.kind, began, elapsed, rows, err)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(errorPause):
			}
		}
	}
}

func (c *client) renewContext(ctx context.Context, now time.Time) {
	if c.cancel != nil {
		c.cancel()
	}
	timeout := c.run.cfg.OperationTimeout
	c.renew = now.Add(timeout)
	c.ctx, c.cancel = context.WithDeadline(ctx, now.Add(2*timeout))
}

// account records an operation that has ended. It began in phase `began`.
func (c *client) account(kind Kind, began int32, elapsed time.Duration, rows int, err error) {
	if err != nil {
		c.live.errors.Add(1)
	} else {
		c.live.ops.Add(1)
		c.live.micros.Add(uint64(elapsed.Microseconds()))
	}
	rec := &c.records[kind]
	if err == nil && c.run.phase.Load() == phaseMeasure {
		rec.inWindow++
		rec.rows += uint64(rows)
	}
	if began != phaseMeasure {
		return
	}
	if err != nil {
		rec.fail(c.run.cfg.Classify(err), err)
		return
	}
	if rec.latency == nil {
		rec.latency = newHistogram()
	}
	rec.max = max(rec.max, elapsed)
	// The value is within the histogram's range, so this cannot fail.
	_ = rec.latency.RecordValue(min(max(elapsed.Microseconds(), histogramLowest), histogramHighest))
}

func (r *record) fail(class string, err error) {
	r.failCount++
	if r.failures == nil {
		r.failures = make(map[string]*failure)
	}
	f := r.failures[class]
	if f == nil {
		f = &failure{example: err.Error()}
		r.failures[class] = f
	}
	f.count++
}

// merge adds the measurements of another client.
func (r *record) merge(other *record) {
	r.inWindow += other.inWindow
	r.rows += other.rows
	r.failCount += other.failCount
	r.max = max(r.max, other.max)
	if other.latency != nil {
		if r.latency == nil {
			r.latency = newHistogram()
		}
		r.latency.Merge(other.latency)
	}
	for class, f := range other.failures {
		if r.failures == nil {
			r.failures = make(map[string]*failure)
		}
		if mine := r.failures[class]; mine != nil {
			mine.count += f.count
		} else {
			r.failures[class] = &failure{count: f.count, example: f.example}
		}
	}
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(histogramLowest, histogramHighest, histogramDigits)
}
