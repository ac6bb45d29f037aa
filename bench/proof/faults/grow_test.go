package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	growRecords = flag.Int("faults.grow-records", 5_000_000, "how many records TestGrow writes")
	growSize    = flag.Uint64("faults.grow-split-size", 64<<20,
		"the split size of TestGrow's keyspace")
)

const (
	growValue   = 200
	growClients = 8
	growBatch   = 100
	// growProbes is the number of clients that put one record at a time. The latency of their puts
	// is measured.
	growProbes = 8
	// growWindow is how long deleted records count for the size. growPause is the planner's pause
	// before merges. growFew is the number of partitions that counts as a few.
	growWindow, growPause, growFew = 30 * time.Second, time.Minute, 4
)

// TestGrow writes records in random order to a range keyspace of one partition. The keyspace splits
// evenly as it grows, and no client sees an error. The latencies of puts during splits are compared
// with those between splits. Then all records are deleted, and the partitions merge to a few while
// reads and writes go on.
func TestGrow(t *testing.T) {
	e := newEnvironment(t, 60*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	_, err := client.CreateKeyspace(e.ctx, "grown", kv.Range(), kv.SplitSize(*growSize),
		kv.GCWindow(growWindow))
	e.must(err, "create the keyspace")
	rows := client.Keyspace("grown")
	var (
		next, splitting atomic.Int64
		running         sync.WaitGroup
		mu              sync.Mutex
		// A put is during a split if it overlaps one, and around a split if it begins within a
		// second of one.
		during, around = newHistogram(), newHistogram()
		between        = newHistogram()
		latest         atomic.Int64 // the last time at which a split was seen, in nanoseconds
		failed         atomic.Int64
		lastErr        atomic.Pointer[error]
		done           = make(chan struct{})
		began          = time.Now()
		note           = func(err error) { failed.Add(1); lastErr.Store(&err) }
		order          = rand.New(rand.NewPCG(1, 25)).Uint64() | 1
		keyOf          = func(i int64) []byte {
			return fmt.Appendf(nil, "r%016x", uint64(i+1)*0x9e3779b97f4a7c15*order)
		}
		batches = int64(*growRecords / growBatch)
	)
	for range growClients {
		running.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= batches || e.ctx.Err() != nil {
					return
				}
				pairs := make([]kv.Pair, growBatch)
				for j := range pairs {
					pairs[j] = kv.Pair{Key: keyOf(n*growBatch + int64(j)), Value: randomBytes(growValue)}
				}
				// One batch for each partition, as a loader does: all pairs at once would be a
				// transaction.
				for _, part := range e.byPartition(rows, pairs) {
					batch := rows.Batch()
					for _, p := range part {
						batch.Put(p.Key, p.Value)
					}
					if _, err := batch.Commit(e.ctx); err != nil {
						note(err)
					}
				}
			}
		})
	}
	var measuring sync.WaitGroup
	for range growProbes {
		measuring.Go(func() {
			for i := int64(0); ; i++ {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				at, now := splitting.Load(), time.Now()
				_, err := rows.Put(e.ctx, keyOf(rand.Int64N(int64(*growRecords))), randomBytes(growValue))
				took := max(1, time.Since(now).Microseconds())
				if err != nil {
					note(err)
					continue
				}
				mu.Lock()
				h := between
				if at != 0 || splitting.Load() != at {
					h = during
				}
				_ = h.RecordValue(took)
				if h == during || now.UnixNano()-latest.Load() < int64(time.Second) {
					_ = around.RecordValue(took)
				}
				mu.Unlock()
			}
		})
	}
	measuring.Go(func() { // looks for splits
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			n := int64(0)
			if all, err := admin.New(client).Operators(e.ctx); err == nil {
				for _, o := range all {
					if o.Kind == "split" {
						n++
					}
				}
				if splitting.Store(n); n > 0 {
					latest.Store(time.Now().UnixNano())
				}
			}
		}
	})
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()
	for writing := true; writing; {
		select {
		case <-finished:
			writing = false
		case <-time.After(30 * time.Second):
			all, err := admin.New(client).Partitions(e.ctx, "grown")
			e.Logf("%d of %d records after %v, %d partitions %v", next.Load()*growBatch, *growRecords,
				time.Since(began).Round(time.Second), len(all), err)
		}
	}
	took := time.Since(began)
	close(done)
	measuring.Wait()
	var most, least uint64
	var partitions int
	settled := func() error {
		all, err := admin.New(client).Partitions(e.ctx, "grown")
		if err != nil {
			return err
		}
		partitions, most, least = len(all), 0, 1<<63
		for _, p := range all {
			most, least = max(most, p.SizeBytes), min(least, p.SizeBytes)
		}
		if most >= 2**growSize {
			return fmt.Errorf("a partition has %d MiB, the split size is %d", most>>20, *growSize>>20)
		}
		return nil
	}
	deadline := time.Now().Add(2 * time.Minute)
	for settled() != nil && time.Now().Before(deadline) {
		e.pass(time.Second)
	}
	e.must(settled(), "wait until the partitions have split")
	p99 := func(h *hdrhistogram.Histogram) time.Duration {
		return time.Duration(h.ValueAtQuantile(99)) * time.Microsecond
	}
	e.result("%d records in %v, %d partitions of %d to %d MiB; puts between splits: %d, p99 %v, "+
		"longest %v; while something split: %d, p99 %v, longest %v: %.1f times; within a second of a "+
		"split: %d, p99 %v: %.1f times", *growRecords,
		took.Round(time.Second), partitions, least>>20, most>>20, between.TotalCount(), p99(between),
		time.Duration(between.Max())*time.Microsecond, during.TotalCount(), p99(during),
		time.Duration(during.Max())*time.Microsecond, float64(p99(during))/float64(p99(between)),
		around.TotalCount(), p99(around), float64(p99(around))/float64(p99(between)))
	if n := failed.Load(); n > 0 {
		e.Errorf("%d writes failed, the last with %v", n, *lastErr.Load())
	}
	if partitions < 2 {
		e.Error("nothing has split")
	}
	n, err := rows.Count(e.ctx)
	e.must(err, "count the records")
	if n != uint64(batches*growBatch) {
		e.Errorf("%d records are there, %d were written", n, batches*growBatch)
	}
	e.shrink(client, rows, partitions)
}

// shrink deletes all records, and waits until the partitions have merged to a few.
func (e *environment) shrink(client *kv.Client, rows *kv.Keyspace, before int) {
	_, err := admin.New(client).LimitPlacement(e.ctx, admin.PlacementSettings{MergePause: growPause})
	e.must(err, "set the pause before merges")
	began := time.Now()
	deleted, err := rows.DeleteRange(e.ctx, kv.All())
	e.must(err, "delete the records")
	e.Logf("%d records deleted in %v", deleted, time.Since(began).Round(time.Second))
	done := make(chan struct{})
	var probes sync.WaitGroup
	var asked, failed atomic.Int64
	var longest atomic.Int64
	probes.Go(func() {
		for i := uint64(1); ; i++ {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
			key, now := fmt.Appendf(nil, "r%016x", i*0x9e3779b97f4a7c15), time.Now()
			_, err := rows.Put(e.ctx, key, []byte("probe"))
			if err == nil {
				_, err = rows.Get(e.ctx, key)
			}
			if err == nil {
				_, err = rows.Delete(e.ctx, key)
			}
			asked.Add(3)
			longest.Store(max(longest.Load(), int64(time.Since(now))))
			if err != nil {
				failed.Add(1)
				e.Logf("while partitions merge: %v", err)
			}
		}
	})
	partitions := before
	for next := time.Now(); partitions > growFew && time.Since(began) < 25*time.Minute; {
		e.pass(time.Second)
		all, err := admin.New(client).Partitions(e.ctx, "grown")
		e.must(err, "list the partitions")
		partitions = len(all)
		if time.Now().After(next) {
			e.Logf("%d partitions %v after all was deleted", partitions,
				time.Since(began).Round(time.Second))
			next = time.Now().Add(time.Minute)
		}
	}
	close(done)
	probes.Wait()
	e.result("%d partitions merged to %d within %v after their %d records were deleted; %d requests "+
		"meanwhile, %d failed, the longest three took %v", before, partitions,
		time.Since(began).Round(time.Second), deleted, asked.Load(), failed.Load(),
		time.Duration(longest.Load()).Round(time.Millisecond))
	if partitions > growFew || failed.Load() > 0 {
		e.Errorf("%d partitions are left, %d requests failed", partitions, failed.Load())
	}
	n, err := rows.Count(e.ctx)
	e.must(err, "count the records")
	if n != 0 {
		e.Errorf("%d records are there, and all were deleted", n)
	}
}

// byPartition groups pairs by partition, as far as the client knows the partitions.
func (e *environment) byPartition(rows *kv.Keyspace, pairs []kv.Pair) map[uint64][]kv.Pair {
	parts := make(map[uint64][]kv.Pair)
	for _, p := range pairs {
		id, err := rows.PartitionOf(e.ctx, p.Key)
		e.must(err, "find the partition of a key")
		parts[id] = append(parts[id], p)
	}
	return parts
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		x := rand.Uint64()
		for j := range 8 {
			b[i+j] = byte(x >> (8 * j))
		}
	}
	return b
}
