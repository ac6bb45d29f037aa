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

// largeConfig configures -what large.
type largeConfig struct {
	transactions int
	idle         time.Duration
}

const (
	// A large transaction has the maximum number of keys and bytes.
	largeKeys  = 100_000
	largeValue = 64<<20/largeKeys - 20
	// smallKeys is the number of keys for the reads. The pause between two reads is readPause.
	smallKeys = 10_000
	readPause = time.Millisecond
	// When the writer is done, the reads continue until the servers use little more than when they
	// were idle, but for at most calmMost: locks may still have to be converted to versions. The
	// servers are checked every calmPeriod.
	calmPeriod = 2 * time.Second
	calmMore   = 0.05
	calmMost   = time.Minute
	readGoal   = 3
)

// large reads single keys while large transactions run.
func large(ctx context.Context, out io.Writer, c *config) error {
	servers, err := startSeparate(ctx, c.dir, 0)
	if err != nil {
		return err
	}
	defer servers.close()
	client, err := kv.Open(ctx, servers.Endpoints())
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
	b := beside{ctx: ctx, ks: ks, servers: servers}
	if err := b.read("idle", nil, time.After(c.large.idle)); err != nil {
		return err
	}
	writer, err := begin(ctx, roleWriter, servers.Endpoints()[0], fmt.Sprint(c.large.transactions))
	if err != nil {
		return err
	}
	defer writer.end()
	done, calm := make(chan time.Time), make(chan time.Time)
	go func() { // ends with the writer, whose end is ensured above
		_ = writer.wait()
		close(done)
		b.calm()
		close(calm)
	}()
	if err := b.read("beside large transactions", writer, done); err != nil {
		return err
	}
	if err := b.read("while their locks become versions", writer, calm); err != nil {
		return err
	}
	wrote, err := writer.finish()
	if err != nil {
		return err
	}
	if err := b.controls(c.large.idle); err != nil {
		return err
	}
	client.Close()
	served, err := servers.finish()
	if err != nil {
		return err
	}
	b.report(out)
	fmt.Fprintf(out, "\nwriter: %s\n", wrote)
	for i, said := range served {
		fmt.Fprintf(out, "server %d: %s\n", i+1, said)
	}
	return nil
}

// beside reads single keys while other load runs.
type beside struct {
	ctx     context.Context
	ks      *kv.Keyspace
	servers *separate
	rows    []reading
}

// reading is the result of reads during one kind of load.
type reading struct {
	name    string
	latency *hdrhistogram.Histogram
	// processors is the average number of processors that the servers, and the other load, used.
	// servers is the number for the servers alone. 0 means unknown.
	processors, servers float64
	// queued is the 99th percentile of the time that goroutines of a server waited for a processor.
	queued time.Duration
}

// read reads until end. other is the process with the other load, if there is one that does not end
// before the reading.
func (b *beside) read(name string, other *actor, end <-chan time.Time) error {
	used := func() (all, servers time.Duration) {
		servers = b.servers.used()
		if other == nil {
			return servers, servers
		}
		return servers + other.used(), servers
	}
	if _, err := b.servers.queued(); err != nil {
		return err
	}
	began := time.Now()
	all, servers := used()
	latency, err := readUntil(b.ctx, b.ks, end)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	allNow, serversNow := used()
	r := reading{name: name, latency: latency, processors: (allNow - all).Seconds() / took,
		servers: (serversNow - servers).Seconds() / took}
	r.queued, err = b.servers.queued()
	b.rows = append(b.rows, r)
	return err
}

// calm waits until the servers have little work.
func (b *beside) calm() {
	for began := time.Now(); time.Since(began) < calmMost; {
		before := b.servers.used()
		time.Sleep(calmPeriod)
		if (b.servers.used() - before).Seconds() <= (b.rows[0].servers+calmMore)*calmPeriod.Seconds() {
			return
		}
	}
}

// controls reads while goroutines use as much processor time as the large transactions did, without
// shared data. First these goroutines are in the servers' process, where Go's scheduler has to
// divide the processors. Then they are in a separate process.
func (b *beside) controls(d time.Duration) error {
	more := b.rows[1].processors - b.rows[0].processors // processors used by the large transactions
	if more <= 0 {
		return nil
	}
	burner, err := begin(b.ctx, roleBurner)
	if err != nil {
		return err
	}
	defer burner.end()
	for _, c := range []struct {
		name string
		burn func(processors float64) error
	}{{"beside as much computing in the servers", b.servers.burn},
		{"beside as much computing elsewhere", burner.burn}} {
		if err := c.burn(more); err != nil {
			return err
		}
		if err := b.read(c.name, burner, time.After(d)); err != nil {
			return err
		}
		if err := c.burn(0); err != nil {
			return err
		}
	}
	return nil
}

func (b *beside) report(out io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"point reads", "count", "median µs", "p90 µs", "p99 µs", "highest µs",
		"p99 times", "goal", "processors", "p99 of waiting for one µs"})
	idle := b.rows[0].latency.ValueAtQuantile(99)
	for i, r := range b.rows {
		times, goal := "", ""
		if i > 0 {
			times = fmt.Sprintf("%.2f", float64(r.latency.ValueAtQuantile(99))/float64(idle))
		}
		if i == 1 {
			goal = fmt.Sprint(readGoal)
		}
		l := r.latency
		t.AppendRow(table.Row{r.name, l.TotalCount(), l.ValueAtQuantile(50), l.ValueAtQuantile(90),
			l.ValueAtQuantile(99), l.Max(), times, goal,
			fmt.Sprintf("%.2f", r.processors), r.queued.Microseconds()})
	}
	t.RenderMarkdown()
}

func smallKey(n int) []byte { return fmt.Appendf(nil, "small-%06d", n) }

// readUntil reads keys until end, and returns the duration of each read, in microseconds.
func readUntil(ctx context.Context, ks *kv.Keyspace, end <-chan time.Time) (*hdrhistogram.Histogram,
	error) {
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
		_ = latency.RecordValue(max(1, time.Since(began).Microseconds())) // less than an hour
	}
}

// writeLarge commits large transactions with the same keys, one after the other.
func writeLarge(ctx context.Context, out io.Writer, endpoint string, transactions int) error {
	client, err := kv.Open(ctx, []string{endpoint}, kv.RequestTimeout(5*time.Minute))
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
