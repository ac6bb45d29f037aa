package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidemarkdb/tidemark/kv"
)

// largeConfig is what -what large does.
type largeConfig struct {
	transactions int
	idle         time.Duration
}

const (
	// A large transaction: as many keys and bytes as one may have.
	largeKeys  = 100_000
	largeValue = 64<<20/largeKeys - 20
	// smallKeys are there to be read, each readPause after the last.
	smallKeys = 10_000
	readPause = time.Millisecond
	// afterwards is how long is read on when the writer is done, for its locks may still be on their way to become versions.
	afterwards = 2 * time.Second
	readGoal   = 3
)

// large reads single keys beside large transactions.
func large(ctx context.Context, out io.Writer, c *config) error {
	servers, err := begin(ctx, roleServers, c.dir)
	if err != nil {
		return err
	}
	defer servers.end()
	endpoint, err := servers.line()
	if err != nil {
		return err
	}
	client, err := kv.Open(ctx, []string{endpoint})
	if err != nil {
		return err
	}
	defer client.Close()
	ks, err := client.CreateKeyspace(ctx, keyspace, kv.Hash(partitions))
	if err != nil {
		return err
	}
	for n := 0; n < smallKeys; {
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for i := range 500 {
				if err := tx.Put(ks, smallKey(n+i), value); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		n += 500
	}
	idle, err := readUntil(ctx, ks, time.After(c.large.idle))
	if err != nil {
		return err
	}
	writer, err := begin(ctx, roleWriter, endpoint, fmt.Sprint(c.large.transactions))
	if err != nil {
		return err
	}
	defer writer.end()
	done := make(chan time.Time)
	go func() { // ends when the writer does, whose end is seen to above
		_ = writer.wait()
		time.Sleep(afterwards)
		close(done)
	}()
	busy, err := readUntil(ctx, ks, done)
	if err != nil {
		return err
	}
	wrote, err := writer.rest()
	if err != nil {
		return err
	}
	client.Close()
	served, err := servers.rest()
	if err != nil {
		return err
	}
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"point reads", "count", "median µs", "p99 µs", "highest µs", "p99 times", "goal"})
	t.AppendRow(table.Row{"idle", idle.TotalCount(), idle.ValueAtQuantile(50), idle.ValueAtQuantile(99), idle.Max(), "", ""})
	t.AppendRow(table.Row{"beside large transactions", busy.TotalCount(), busy.ValueAtQuantile(50), busy.ValueAtQuantile(99), busy.Max(),
		fmt.Sprintf("%.2f", float64(busy.ValueAtQuantile(99))/float64(idle.ValueAtQuantile(99))), readGoal})
	t.RenderMarkdown()
	fmt.Fprintf(out, "\nwriter: %s\nservers: %s\n", wrote, served)
	return nil
}

func smallKey(n int) []byte { return fmt.Appendf(nil, "small-%06d", n) }

// readUntil reads keys until end, and returns how long each took, in microseconds.
func readUntil(ctx context.Context, ks *kv.Keyspace, end <-chan time.Time) (*hdrhistogram.Histogram, error) {
	latency := hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	ticker := time.NewTicker(readPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-end:
			return latency, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		began := time.Now()
		if _, err := ks.Get(ctx, smallKey(rand.IntN(smallKeys))); err != nil {
			return nil, err
		}
		_ = latency.RecordValue(max(1, time.Since(began).Microseconds())) // an hour is not exceeded
	}
}

// writeLarge commits large transactions, one after the other, of the same keys.
func writeLarge(ctx context.Context, out io.Writer, endpoint string, transactions int) error {
	client, err := kv.Open(ctx, []string{endpoint}, kv.WithRequestTimeout(5*time.Minute))
	if err != nil {
		return err
	}
	defer client.Close()
	ks := client.Keyspace(keyspace)
	large := make([]byte, largeValue)
	for range transactions {
		began := time.Now()
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for n := range largeKeys {
				if err := tx.Put(ks, fmt.Appendf(nil, "large-%06d", n), large); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s, ", time.Since(began).Round(time.Millisecond))
	}
	return nil
}
