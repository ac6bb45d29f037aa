package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

// Registers is the interface of a store that the load needs. *Store implements it.
type Registers interface {
	Get(ctx context.Context, key string) (history.State, error)
	Put(ctx context.Context, key, value string) error
	Delete(ctx context.Context, key string) (existed bool, err error)
	CompareAndSwap(ctx context.Context, key string, expected, next history.State) (swapped bool,
		found history.State, err error)
}

// Load is a steady, recorded load on a few keys, so that many clients use each key at once.
type Load struct {
	Store    Registers
	Recorder *history.Recorder
	// Keys is the number of registers, and Counters the number of counters.
	Keys, Counters int
	// Clients is the number of goroutines. Each of them begins an operation every Interval, unless
	// the operation before takes longer.
	Clients  int
	Interval time.Duration
	// Timeout is the deadline of one operation with its retries. After it the outcome is unknown.
	Timeout time.Duration

	counters []history.Counter
	group    sync.WaitGroup
	cancel   context.CancelFunc

	done, failed atomic.Int64
	// lastError is the latest error, for the report.
	lastError atomic.Pointer[error]
}

// Start starts the load, which runs until Stop or the end of ctx.
func (l *Load) Start(ctx context.Context) {
	l.counters = make([]history.Counter, l.Counters)
	ctx, l.cancel = context.WithCancel(ctx)
	for client := range l.Clients {
		l.group.Go(func() { l.client(ctx, client) })
	}
}

// Stop ends the load, and waits for the operations that are under way.
func (l *Load) Stop() {
	l.cancel()
	l.group.Wait()
}

func (l *Load) client(ctx context.Context, client int) {
	random := rand.New(rand.NewPCG(uint64(client), 0x6c6f6164))
	ticker := time.NewTicker(l.Interval)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// An operation that has begun is finished, even if the load is stopped.
		operation, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
		err := l.one(operation, random, client, n)
		cancel()
		if err != nil {
			l.failed.Add(1)
			l.lastError.Store(&err)
		} else {
			l.done.Add(1)
		}
	}
}

// one does one operation of one client. Its values are unique.
func (l *Load) one(ctx context.Context, random *rand.Rand, client, n int) error {
	if l.Counters > 0 && random.IntN(4) == 0 {
		return l.increment(ctx, client, n, random.IntN(l.Counters))
	}
	key := registerKey(random.IntN(l.Keys))
	value := fmt.Sprintf("client %d, operation %d", client, n)
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		return l.put(ctx, client, key, value)
	case 4, 5, 6:
		_, err := l.get(ctx, client, key)
		return err
	case 7, 8:
		found, err := l.get(ctx, client, key)
		if err != nil {
			return err
		}
		_, err = l.swap(ctx, client, key, found, history.Value(value))
		return err
	default:
		return l.remove(ctx, client, key)
	}
}

func registerKey(i int) string { return fmt.Sprintf("register-%04d", i) }
func counterKey(i int) string  { return fmt.Sprintf("counter-%04d", i) }

func (l *Load) get(ctx context.Context, client int, key string) (history.State, error) {
	pending := l.Recorder.Begin(history.Operation{Client: client, Key: key, Kind: history.Get})
	found, err := l.Store.Get(ctx, key)
	if err != nil {
		pending.Unknown()
		return found, fmt.Errorf("get %s: %w", key, err)
	}
	pending.Got(found)
	return found, nil
}

func (l *Load) put(ctx context.Context, client int, key, value string) error {
	pending := l.Recorder.Begin(history.Operation{Client: client, Key: key, Kind: history.Put,
		New: history.Value(value)})
	if err := l.Store.Put(ctx, key, value); err != nil {
		failed(pending, err)
		return fmt.Errorf("put %s: %w", key, err)
	}
	pending.Put()
	return nil
}

func (l *Load) remove(ctx context.Context, client int, key string) error {
	pending := l.Recorder.Begin(history.Operation{Client: client, Key: key, Kind: history.Delete})
	existed, err := l.Store.Delete(ctx, key)
	if err != nil {
		failed(pending, err)
		return fmt.Errorf("delete %s: %w", key, err)
	}
	pending.Deleted(existed)
	return nil
}

func (l *Load) swap(ctx context.Context, client int, key string, expected, next history.State) (
	bool, error) {
	pending := l.Recorder.Begin(history.Operation{Client: client, Key: key,
		Kind: history.CompareAndSwap, Expected: expected, New: next})
	swapped, found, err := l.Store.CompareAndSwap(ctx, key, expected, next)
	switch {
	case err != nil:
		failed(pending, err)
		return false, fmt.Errorf("compare-and-swap %s: %w", key, err)
	case swapped:
		pending.Swapped()
	default:
		pending.NotSwapped(found)
	}
	return swapped, nil
}

// increment reads a counter and increments it by a compare-and-swap. The values are unique (number
// and writer), so a swap that is applied twice cannot look like another client's swap.
func (l *Load) increment(ctx context.Context, client, n, i int) error {
	key := counterKey(i)
	found, err := l.get(ctx, client, key)
	if err != nil {
		return err
	}
	number, err := counterNumber(found)
	if err != nil {
		return fmt.Errorf("counter %s: %w", key, err)
	}
	next := history.Value(fmt.Sprintf("%d client %d, operation %d", number+1, client, n))
	swapped, err := l.swap(ctx, client, key, found, next)
	switch {
	case err != nil && certainlyRefused(err):
	case err != nil:
		l.counters[i].Unknown()
	case swapped:
		l.counters[i].Added()
	}
	return err
}

// counterNumber returns the number at the beginning of a counter's value. An absent counter is 0.
func counterNumber(state history.State) (uint64, error) {
	if !state.Present {
		return 0, nil
	}
	digits, _, _ := strings.Cut(state.Value, " ")
	return strconv.ParseUint(digits, 10, 64)
}

// Check reads every key once more, so that a write that was lost at the end is noticed, and checks
// the history and the counters. The load must have been stopped.
func (l *Load) Check(ctx context.Context) (history.Report, error) {
	var failures []error
	for i := range l.Keys {
		if _, err := l.get(ctx, -1, registerKey(i)); err != nil {
			failures = append(failures, fmt.Errorf("after the faults: %w", err))
		}
	}
	for i := range l.counters {
		found, err := l.get(ctx, -1, counterKey(i))
		if err != nil {
			failures = append(failures, fmt.Errorf("after the faults: %w", err))
			continue
		}
		number, err := counterNumber(found)
		if err == nil {
			err = l.counters[i].Check(number)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", counterKey(i), err))
		}
	}
	report := history.Check(l.Recorder.Operations(), time.Minute)
	return report, errors.Join(append(failures, report.Err())...)
}

// Summary describes the results of the operations in one line.
func (l *Load) Summary() string {
	text := fmt.Sprintf("%d operations answered, %d failed", l.done.Load(), l.failed.Load())
	if err := l.lastError.Load(); err != nil {
		text += fmt.Sprintf(" (the last: %v)", *err)
	}
	return text
}

// failed records a write that ended with an error: as refused if the SDK is certain that the write
// had no effect, otherwise as unknown.
func failed(pending history.Pending, err error) {
	if certainlyRefused(err) {
		pending.Refused()
		return
	}
	pending.Unknown()
}
