package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "capacity:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	endpoint, to          string
	n, value, connections int
	ttl                   time.Duration
	renew                 bool
}

func run(ctx context.Context) error {
	var s settings
	which := flag.String("case", "keys", "file, keys, leases, watches or streams")
	flag.StringVar(&s.endpoint, "endpoint", "127.0.0.1:7400", "the server")
	flag.StringVar(&s.to, "to", "", "the file to write")
	flag.IntVar(&s.n, "n", 100_000, "how many keys, leases, watches or streams")
	flag.IntVar(&s.value, "value", 900, "bytes of a value")
	flag.IntVar(&s.connections, "connections", 1, "connections of the client, for streams")
	flag.DurationVar(&s.ttl, "ttl", time.Minute, "term of the leases")
	flag.BoolVar(&s.renew, "renew", true, "renew each lease once")
	flag.Parse()
	do, ok := map[string]func(context.Context, *settings) error{"file": writeFile, "keys": keys,
		"leases": leases, "watches": watches, "streams": streams}[*which]
	if !ok || s.n < 1 || s.connections < 1 {
		return errors.New("there is no such -case, or -n or -connections is below 1")
	}
	return do(ctx, &s)
}

func (s *settings) client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Logger: zap.NewNop(),
		DialTimeout: 10 * time.Second, MaxCallRecvMsgSize: 1 << 30})
}

func key(i int) string { return fmt.Sprintf("capacity/%010d", i) }

// step prints the time that a step took.
func step(what string, began time.Time) {
	fmt.Printf("%-44s %10.1f s\n", what, time.Since(began).Seconds())
}

// latency calls f several times, one call at a time, and prints the latencies.
func latency(ctx context.Context, what string, times int, f func(int) error) error {
	var all []time.Duration
	for i := range times {
		began := time.Now()
		if err := f(i); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		all = append(all, time.Since(began))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	printLatency(what, all)
	return nil
}

func printLatency(what string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	fmt.Printf("%-44s %6d  p50 %.1f  p99 %.1f  most %.1f ms\n", what, len(all), at(.5), at(.99),
		at(1))
}

// progress prints the number of finished operations every 10 s, until stop is called.
func progress(what string, done *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				fmt.Printf("  %d %s\n", done.Load(), what)
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// others puts and gets a key of its own every 20 ms, until stop is called. stop prints the
// latencies.
func others(client *clientv3.Client, what string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var puts, gets []time.Duration
	failed := 0
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			_, err := client.Put(ctx, "capacity-others", fmt.Sprint(i))
			put := time.Since(began)
			began = time.Now()
			if err == nil {
				_, err = client.Get(ctx, "capacity-others")
			}
			switch {
			case ctx.Err() != nil:
			case err != nil:
				failed++
			default:
				puts, gets = append(puts, put), append(gets, time.Since(began))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		running.Wait()
		printLatency("  others' puts "+what, puts)
		printLatency("  others' gets "+what, gets)
		if failed > 0 {
			fmt.Printf("  %d of others' requests failed\n", failed)
		}
	}
}

// each calls f with 0 to n-1, on several goroutines, until a call fails.
func each(ctx context.Context, n, workers int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(workers, n) {
		running.Go(func() {
			for i := next.Add(1) - 1; int(i) < n && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}
