package faults

import (
	"encoding/binary"
	"flag"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

var (
	bulkRecords = flag.Int("faults.bulk-records", 1_000_000, "how many records TestBulkLoad loads")
	bulkRounds  = flag.Int("faults.bulk-rounds", 3, "how often TestBulkLoad loads them each way")
)

const (
	bulkValue   = 100
	bulkClients = 64
	// bulkBatch is the number of records of a batch, and bulkBatches the number of concurrent
	// batches.
	bulkBatch   = 512
	bulkBatches = 16
	// bulkFactor: a load must be this many times as fast as puts.
	bulkFactor = 5
)

// bulkRecord returns record i. The keys come in no order, and the values cannot be compressed.
func bulkRecord(i int) kv.Pair {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	value := make([]byte, 0, bulkValue+8)
	for y := x; len(value) < bulkValue; {
		y ^= y << 13
		y ^= y >> 7
		y ^= y << 17
		value = binary.BigEndian.AppendUint64(value, y)
	}
	return kv.Pair{Key: fmt.Appendf(nil, "r%016x", x), Value: value[:bulkValue]}
}

// TestBulkLoad writes the same records by puts of 64 clients, by batches, and by a load that splits
// the keyspace first, in turns, each time to a new keyspace. The keyspaces for puts and batches are
// split in advance. The time of the load includes its splits. Then it loads the records again,
// which writes nothing.
func TestBulkLoad(t *testing.T) {
	e := newEnvironment(t, 60*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	n := *bulkRecords
	create := func(name string, split bool) *kv.Keyspace {
		var at [][]byte
		for i := 1; split && i < 8; i++ {
			at = append(at, fmt.Appendf(nil, "r%x", 2*i))
		}
		ks, err := client.CreateKeyspace(e.ctx, name, kv.Range(at...))
		e.must(err, "create keyspace %s", name)
		return ks
	}
	puts := func(ks *kv.Keyspace) {
		e.inParallel(bulkClients, n, func(i int) error {
			p := bulkRecord(i)
			_, err := ks.Put(e.ctx, p.Key, p.Value)
			return err
		})
	}
	batches := func(ks *kv.Keyspace) {
		parts := map[uint64][]kv.Pair{}
		var full [][]kv.Pair
		for i := range n {
			p := bulkRecord(i)
			id, err := ks.PartitionOf(e.ctx, p.Key)
			e.must(err, "find the partition of a key")
			if parts[id] = append(parts[id], p); len(parts[id]) == bulkBatch {
				full, parts[id] = append(full, parts[id]), nil
			}
		}
		for _, rest := range parts {
			full = append(full, rest)
		}
		e.inParallel(bulkBatches, len(full), func(i int) error {
			b := ks.Batch()
			for _, p := range full[i] {
				b.Put(p.Key, p.Value)
			}
			_, err := b.Commit(e.ctx)
			return err
		})
	}
	records := func() iter.Seq2[kv.Pair, error] {
		return func(yield func(kv.Pair, error) bool) {
			for i := range n {
				if !yield(bulkRecord(i), nil) {
					return
				}
			}
		}
	}
	var loaded kv.Loaded
	load := func(ks *kv.Keyspace) {
		var err error
		loaded, err = ks.Load(e.ctx, records, kv.Presplit())
		e.must(err, "load")
	}
	ways := []struct {
		name  string
		split bool
		run   func(*kv.Keyspace)
	}{{"puts", true, puts}, {"batches", true, batches}, {"load", false, load}}
	rates := map[string][]float64{}
	for round := range *bulkRounds {
		for _, way := range ways {
			ks := create(fmt.Sprintf("%s%d", way.name, round), way.split)
			began := time.Now()
			way.run(ks)
			took := time.Since(began)
			rate := float64(n) / took.Seconds()
			rates[way.name] = append(rates[way.name], rate)
			e.result("round %d: %d records by %s in %.1f s, %.0f/s", round+1, n, way.name, took.Seconds(),
				rate)
			count, err := ks.Count(e.ctx)
			e.must(err, "count")
			if count != uint64(n) {
				e.Errorf("%s: %d records of %d", way.name, count, n)
			}
			if way.name == "load" {
				e.result("round %d: %d splits", round+1, loaded.Splits)
				began := time.Now()
				load(ks)
				e.result("round %d: the same again in %.1f s", round+1, time.Since(began).Seconds())
				if loaded.Written != 0 || loaded.Present != uint64(n) {
					e.Errorf("again: %+v", loaded)
				}
			}
			e.must(client.DropKeyspace(e.ctx, ks.Name()), "drop keyspace %s", ks.Name())
		}
	}
	median := func(name string) float64 {
		slices.Sort(rates[name])
		return rates[name][len(rates[name])/2]
	}
	factor := median("load") / median("puts")
	e.result("medians: puts %.0f/s, batches %.0f/s, load %.0f/s: %.1f times as fast as puts, %.1f "+
		"times as fast as batches", median("puts"), median("batches"), median("load"), factor,
		median("load")/median("batches"))
	if factor < bulkFactor {
		e.Errorf("a load is %.1f times as fast as puts, and should be %d times", factor, bulkFactor)
	}
}

// inParallel calls f for 0 to n-1 from several goroutines.
func (e *environment) inParallel(clients, n int, f func(i int) error) {
	e.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		e.must(*err, "write")
	}
}
