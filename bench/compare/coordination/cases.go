package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	valueBytes = 256
	// keySpace is the number of keys from which puts and gets choose.
	keySpace = 100_000
	// loadOperations is the number of puts in one transaction of a load.
	loadOperations = 100
)

// figure is one measurement. Fields that do not apply to a case are 0.
type figure struct {
	perSecond, perCPUSecond float64
	p50, p99                time.Duration
	cpuSeconds              float64
	clientCPUSeconds        float64
	residentMiB             float64
}

func (f figure) String() string {
	return fmt.Sprintf("%.0f/s, p50 %v, p99 %v, %.1f CPU s, %.0f per CPU s, client %.1f CPU s, "+
		"%.0f MiB", f.perSecond, f.p50, f.p99, f.cpuSeconds, f.perCPUSecond, f.clientCPUSeconds,
		f.residentMiB)
}

type measurement func(context.Context, *settings, *subject) (figure, error)

var measurements = map[string]measurement{
	"put1": puts(1), "put64": puts(64), "put256": puts(256),
	"get1": gets(1), "get64": gets(64), "get256": gets(256),
	"watch": watch, "leases": leases, "memory": memory,
}

func value() string {
	b := make([]byte, valueBytes)
	_, _ = rand.Read(b) // never fails
	return string(b)
}

func key(n uint64) string { return fmt.Sprintf("key%016x", n%keySpace) }

func puts(clients int) measurement {
	return func(ctx context.Context, s *settings, x *subject) (figure, error) {
		v := value()
		put := func(ctx context.Context, n uint64) error {
			_, err := x.client().Put(ctx, key(n*7919), v)
			return err
		}
		if err := x.warmUp(ctx, s, put); err != nil {
			return figure{}, err
		}
		return closedLoop(ctx, s, x, clients, put)
	}
}

func gets(clients int) measurement {
	return func(ctx context.Context, s *settings, x *subject) (figure, error) {
		if err := load(ctx, x, 10_000); err != nil {
			return figure{}, err
		}
		return closedLoop(ctx, s, x, clients, func(ctx context.Context, n uint64) error {
			_, err := x.client().Get(ctx, key(n*7919%10_000))
			return err
		})
	}
}

// warmUp writes for a while, once for each subject: new servers create the first files of their
// logs then, and reuse them afterwards.
func (x *subject) warmUp(
	ctx context.Context, s *settings, put func(ctx context.Context, n uint64) error,
) error {
	if x.warm {
		return nil
	}
	x.warm = true
	warming := *s
	warming.duration = s.warmUp
	_, err := closedLoop(ctx, &warming, x, 64, put)
	return err
}

// load writes the first n keys.
func load(ctx context.Context, x *subject, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	v := value()
	for from := 0; from < n; from += loadOperations {
		group.Go(func() error {
			var ops []clientv3.Op
			for i := from; i < min(n, from+loadOperations); i++ {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("key%016x", i), v))
			}
			_, err := x.client().Txn(ctx).Then(ops...).Commit()
			return err
		})
	}
	return group.Wait()
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// closedLoop has clients do one operation after the other.
func closedLoop(ctx context.Context, s *settings, x *subject, clients int,
	do func(ctx context.Context, n uint64) error) (figure, error) {
	var mu sync.Mutex
	all := hdrhistogram.New(1, int64(time.Minute), 3)
	var number atomic.Uint64
	before, _, err := x.used()
	if err != nil {
		return figure{}, err
	}
	own := ownCPU()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range clients {
		group.Go(func() error {
			own := hdrhistogram.New(1, int64(time.Minute), 3)
			for time.Since(began) < s.duration {
				start := time.Now()
				if err := do(ctx, number.Add(1)); err != nil {
					return err
				}
				_ = own.RecordValue(int64(time.Since(start)))
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(own)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return figure{}, err
	}
	elapsed := time.Since(began)
	own = ownCPU() - own
	after, resident, err := x.used()
	n := float64(all.TotalCount())
	return figure{perSecond: n / elapsed.Seconds(), clientCPUSeconds: own.Seconds(),
		p50: time.Duration(all.ValueAtQuantile(50)),
		p99: time.Duration(all.ValueAtQuantile(99)), cpuSeconds: after - before,
		perCPUSecond: n / (after - before), residentMiB: float64(resident) / (1 << 20)}, err
}

// watch has one writer and many watchers of a key. Watchers share the connections, and each stream
// has many watchers, as clients have by default.
func watch(ctx context.Context, s *settings, x *subject) (figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var delivered atomic.Uint64
	var ready, ended sync.WaitGroup
	ready.Add(s.watchers)
	for i := range s.watchers {
		c := x.clients[i%len(x.clients)]
		ended.Go(func() {
			first := true
			for r := range c.Watch(ctx, "watched", clientv3.WithCreatedNotify()) {
				if first {
					ready.Done()
					first = false
				}
				delivered.Add(uint64(len(r.Events)))
			}
		})
	}
	ready.Wait()
	before, _, err := x.used()
	if err != nil {
		return figure{}, err
	}
	began, v := time.Now(), value()
	for written := uint64(0); time.Since(began) < s.duration; {
		if _, err := x.client().Put(ctx, "watched", v); err != nil {
			return figure{}, err
		}
		written++
		// The writer waits for the watchers, so that both subjects deliver all events.
		for delivered.Load() < written*uint64(s.watchers) && time.Since(began) < 3*s.duration {
			time.Sleep(time.Millisecond)
		}
	}
	elapsed := time.Since(began)
	after, resident, err := x.used()
	n := float64(delivered.Load())
	cancel()
	ended.Wait()
	return figure{perSecond: n / elapsed.Seconds(), cpuSeconds: after - before,
		perCPUSecond: n / (after - before), residentMiB: float64(resident) / (1 << 20)}, err
}

// leases measures leases that the client keeps alive. The client renews each lease after a third of
// its term.
func leases(ctx context.Context, s *settings, x *subject) (figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var renewed atomic.Uint64
	var ended sync.WaitGroup
	granted := make([]clientv3.LeaseID, s.leases)
	granting, grantCtx := errgroup.WithContext(ctx)
	granting.SetLimit(64)
	for i := range s.leases {
		granting.Go(func() error {
			c := x.clients[i%len(x.clients)]
			grant, err := c.Grant(grantCtx, 15)
			if err != nil {
				return err
			}
			granted[i] = grant.ID
			alive, err := c.KeepAlive(ctx, grant.ID)
			if err != nil {
				return err
			}
			ended.Go(func() {
				for range alive {
					renewed.Add(1)
				}
			})
			return nil
		})
	}
	if err := granting.Wait(); err != nil {
		return figure{}, err
	}
	time.Sleep(5 * time.Second) // by now all have been renewed once
	renewed.Store(0)
	before, _, err := x.used()
	if err != nil {
		return figure{}, err
	}
	began := time.Now()
	time.Sleep(3 * s.duration)
	elapsed := time.Since(began)
	n := float64(renewed.Load())
	after, resident, err := x.used()
	cancel()
	ended.Wait()
	return figure{perSecond: n / elapsed.Seconds(), cpuSeconds: after - before,
			perCPUSecond: n / (after - before), residentMiB: float64(resident) / (1 << 20)},
		errors.Join(err, x.revoke(granted))
}

// revoke revokes leases, so that they do not expire during another measurement.
func (x *subject) revoke(leases []clientv3.LeaseID) error {
	revoking, ctx := errgroup.WithContext(context.Background())
	revoking.SetLimit(64)
	for _, id := range leases {
		revoking.Go(func() error {
			_, err := x.client().Revoke(ctx, id)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return nil // the lease has expired, or the call was made twice
			}
			return err
		})
	}
	return revoking.Wait()
}

// memory measures the resident memory of the servers with many keys.
func memory(ctx context.Context, s *settings, x *subject) (figure, error) {
	began := time.Now()
	before, _, err := x.used()
	if err != nil {
		return figure{}, err
	}
	if err := load(ctx, x, s.keys); err != nil {
		return figure{}, err
	}
	elapsed := time.Since(began)
	time.Sleep(s.duration)
	after, resident, err := x.used()
	return figure{perSecond: float64(s.keys) / elapsed.Seconds(), cpuSeconds: after - before,
		residentMiB: float64(resident) / (1 << 20)}, err
}
