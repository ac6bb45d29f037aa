package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/kv"
)

const (
	keysOfKind = 100_000
	valueBytes = 256
	// patience is the time limit of a request of an open load.
	patience = 2 * time.Second
	// mostOutstanding bounds the requests of a load without an answer. Beyond this number requests are
	// not sent, and count as failed.
	mostOutstanding = 20_000
)

// counts are numbers of requests by their outcome.
type counts struct {
	OK, Failed, NotMade uint64
	// Refusals are failures because of overload.
	Refusals uint64
}

func (c counts) minus(o counts) counts {
	return counts{c.OK - o.OK, c.Failed - o.Failed, c.NotMade - o.NotMade, c.Refusals - o.Refusals}
}

func (c counts) plus(o counts) counts {
	return counts{c.OK + o.OK, c.Failed + o.Failed, c.NotMade + o.NotMade, c.Refusals + o.Refusals}
}

// load sends requests. Half of them are reads and half are writes.
type load struct {
	name                          string
	keyspace                      *kv.Keyspace
	priority                      kv.Priority
	ok, failed, notMade, refusals atomic.Uint64
	outstanding                   atomic.Int64
	running                       sync.WaitGroup
	cancel                        context.CancelFunc

	mu struct {
		sync.Mutex
		// latencies has the latencies of successful requests since the last call of take, in
		// microseconds.
		latencies *hdrhistogram.Histogram
		failure   error
	}
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)
}

func newLoad(name string, ks *kv.Keyspace, p kv.Priority) *load {
	l := &load{name: name, keyspace: ks, priority: p}
	l.mu.latencies = newHistogram()
	return l
}

// open sends requests at a rate a second, until stop is called.
func (l *load) open(ctx context.Context, rate float64) {
	ctx, l.cancel = context.WithCancel(kv.WithPriority(ctx, l.priority))
	l.running.Go(func() {
		began, made := time.Now(), 0
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			due := int(time.Since(began).Seconds() * rate)
			for ; made < due; made++ {
				if l.outstanding.Load() >= mostOutstanding {
					l.notMade.Add(1)
					continue
				}
				l.outstanding.Add(1)
				l.running.Go(func() {
					defer l.outstanding.Add(-1)
					l.one(ctx, patience)
				})
			}
		}
	})
}

// closed sends requests with the given number of clients, until stop is called. Each client waits
// for its answers.
func (l *load) closed(ctx context.Context, clients int) {
	ctx, l.cancel = context.WithCancel(kv.WithPriority(ctx, l.priority))
	for range clients {
		l.running.Go(func() {
			for ctx.Err() == nil {
				l.one(ctx, 30*time.Second)
			}
		})
	}
}

// stop ends the load. It returns when all requests are answered.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

func (l *load) one(ctx context.Context, patience time.Duration) {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	key := fmt.Appendf(nil, "key-%08d", rand.IntN(keysOfKind))
	began := time.Now()
	var err error
	if rand.IntN(2) == 0 {
		if _, err = l.keyspace.Get(trying, key); errors.Is(err, kv.ErrNotFound) {
			err = nil
		}
	} else {
		_, err = l.keyspace.Put(trying, key, make([]byte, valueBytes))
	}
	took := time.Since(began)
	if err != nil {
		l.failed.Add(1)
		if errors.Is(err, kv.ErrOverloaded) {
			l.refusals.Add(1)
		}
		l.mu.Lock()
		l.mu.failure = err
		l.mu.Unlock()
		return
	}
	l.ok.Add(1)
	l.mu.Lock()
	_ = l.mu.latencies.RecordValue(min(took.Microseconds(), l.mu.latencies.HighestTrackableValue()))
	l.mu.Unlock()
}

// counts returns the outcomes of all requests so far.
func (l *load) counts() counts {
	return counts{l.ok.Load(), l.failed.Load(), l.notMade.Load(), l.refusals.Load()}
}

// take returns the latencies since the last call, and the latest failure.
func (l *load) take() (*hdrhistogram.Histogram, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, err := l.mu.latencies, l.mu.failure
	l.mu.latencies, l.mu.failure = newHistogram(), nil
	return h, err
}

// quantile returns a quantile of latencies. q is in percent.
func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}
