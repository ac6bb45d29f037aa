package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	lockedFor = flag.Duration("faults.locked", time.Minute,
		"for how long TestReadsUnderLocks measures")
	lockedTxns  = flag.Int("faults.locked-txns", 500, "how many transactions a second it runs")
	lockedReads = flag.Int("faults.locked-reads", 1000, "how many reads a second")
	lockedKeys  = flag.Int("faults.locked-keys", 4, "how many keys are contended")
	lockedThink = flag.Duration("faults.locked-think", 50*time.Millisecond,
		"how long a transaction on contended keys thinks between its reads and its commit")
	lockedBound = flag.Duration("faults.locked-bound", 2*time.Second,
		"how old what half of the reads read may be (MaxStaleness); the others take Nearest")
	lockedFirst = flag.Float64("faults.locked-first", 0.999,
		"the part of the reads that the replica has to answer that is asked first")
	lockedWait = flag.Duration("faults.locked-wait", 50*time.Millisecond,
		"the longest wait for a lock that is allowed")
)

const (
	lockedWriters, lockedReaders = 48, 8
	// lockedContended is the share of transactions on contended keys, and lockedRead the share of
	// reads.
	lockedContended, lockedRead = 0.01, 0.5
	lockedCold                  = 20_000
)

func hotKey(i int) []byte { return fmt.Appendf(nil, "hot-%04d", i) }

// lockedLoad has the results of writers and readers.
type lockedLoad struct {
	transactions, contended, failed atomic.Int64
	lastError                       atomic.Pointer[error]
	// restarted counts contended transactions that ran more than once.
	restarted atomic.Int64
}

func (l *lockedLoad) fail(err error) {
	l.failed.Add(1)
	l.lastError.Store(&err)
}

// readsOf has the results of reads of one kind.
type readsOf struct {
	first, others float64
	// whole has the latencies of all reads. redirected has the latencies of reads that met a lock
	// and were redirected.
	whole, redirected *hdrhistogram.Histogram
}

// TestReadsUnderLocks reads at replicas that may lag, while transactions run at a steady rate. One
// transaction in a hundred touches contended keys; half of the reads are of contended keys. The
// test counts the reads that the first replica answered, and computes a bound of the longest wait
// for a lock.
//
// The transactions lock the keys that they read as writers do. So the waits of reads that the
// servers count are waits of the measured reads.
func TestReadsUnderLocks(t *testing.T) {
	e := newEnvironment(t, *lockedFor+5*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start("locked", 24, 3)
	client, counted := e.openClient()
	ks := client.Keyspace("locked")
	var rows []kv.Pair
	for i := range lockedCold {
		rows = append(rows, kv.Pair{Key: rowKey(i), Value: []byte("0")})
	}
	for i := range *lockedKeys {
		rows = append(rows, kv.Pair{Key: hotKey(i), Value: []byte("0")})
	}
	for _, part := range e.byPartition(ks, rows) {
		batch := ks.Batch()
		for _, p := range part {
			batch.Put(p.Key, p.Value)
		}
		_, err := batch.Commit(e.ctx)
		e.must(err, "write the rows")
	}

	load := &lockedLoad{}
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for range lockedWriters {
		running.Go(func() {
			e.paced(ctx, lockedWriters, *lockedTxns, func() { load.transaction(ctx, client, ks) })
		})
	}
	for range 3 {
		e.wait(30*time.Second, "replicas have all rows", func(ctx context.Context) error {
			n, err := ks.Count(ctx, kv.Nearest())
			if err == nil && n != uint64(len(rows)) {
				err = fmt.Errorf("counted %d of %d rows", n, len(rows))
			}
			return err
		})
	}
	e.pass(2 * time.Second)

	waits, sizes := e.lockWaits(), load.sizes()
	restarts := counted.all("tidemark_client_txn_restarts_total")
	measured, end := context.WithTimeout(ctx, *lockedFor)
	defer end()
	var mu sync.Mutex
	found, reasons := make(map[string]*readsOf), make(map[string]float64)
	var readers sync.WaitGroup
	began := time.Now()
	for range lockedReaders {
		own, c := e.openClient()
		readers.Go(func() {
			mine := e.readLocked(measured, own.Keyspace("locked"), c, load)
			mu.Lock()
			defer mu.Unlock()
			for name, r := range mine {
				if all := found[name]; all != nil {
					all.first, all.others = all.first+r.first, all.others+r.others
					all.whole.Merge(r.whole)
					all.redirected.Merge(r.redirected)
				} else {
					found[name] = r
				}
			}
			for reason, n := range c.all("tidemark_client_follower_read_redirects_total") {
				reasons[reason] += n
			}
		})
	}
	readers.Wait()
	took := time.Since(began)
	waited := less(e.lockWaits(), waits)
	did := less(load.sizes(), sizes)
	again := less(counted.all("tidemark_client_txn_restarts_total"), restarts)
	stop()
	running.Wait()
	maps.DeleteFunc(reasons, func(_ string, n float64) bool { return n == 0 })

	first, all := 0.0, 0.0
	var longest, sent int64
	for _, name := range []string{"nearest, contended", "nearest, others", "bounded, contended",
		"bounded, others"} {
		r := found[name]
		if r == nil {
			e.Fatalf("no reads of %s keys", name)
		}
		first, all = first+r.first, all+r.first+r.others
		longest, sent = max(longest, r.whole.Max()), max(sent, r.redirected.Max())
		e.result("reads (%s): %.0f, of which the first replica answered %.3f %%; p50 %d µs, p99 "+
			"%d µs, longest %d µs; %d met a lock and went on, longest %d µs", name, r.first+r.others,
			100*r.first/(r.first+r.others), r.whole.ValueAtQuantile(50), r.whole.ValueAtQuantile(99),
			r.whole.Max(), r.redirected.TotalCount(), r.redirected.Max())
	}
	seconds := took.Seconds()
	e.result("%.0f transactions a second, of which %.2f %% on %d contended keys (%.0f of those ran "+
		"again; restarts of all: %v); servers counted waits for locks: %.0f of writes, %.0f of "+
		"reads; redirects: %v",
		did["transactions"]/seconds, 100*did["contended"]/did["transactions"], *lockedKeys,
		did["restarted"], again, waited["write"], waited["read"], reasons)
	// A read that waited for a lock is counted by the servers, or was redirected.
	bound := time.Duration(longest) * time.Microsecond
	switch {
	case waited["read"] == 0 && sent == 0:
		bound = 0
	case waited["read"] == 0:
		bound = time.Duration(sent) * time.Microsecond
	}
	e.result("%.0f reads, %.3f %% were answered by the replica that was asked first (wanted: %.1f); "+
		"none waited longer than %v for a lock (allowed: %v)", all, 100*first/all, 100**lockedFirst,
		bound, *lockedWait)
	if n := load.failed.Load(); n > 0 {
		e.Errorf("%d operations failed, the last with %v", n, *load.lastError.Load())
	}
	if did["contended"] == 0 {
		e.Error("no transaction has touched a contended key")
	}
	if first/all < *lockedFirst {
		e.Errorf("%.3f %% of the reads were answered by the first replica, wanted are %.1f %%",
			100*first/all, 100**lockedFirst)
	}
	if bound > *lockedWait {
		e.Errorf("a read may have waited %v for a lock, allowed are %v", bound, *lockedWait)
	}
}

// paced calls do again and again until ctx ends, rate times a second for all workers together. A
// late call is not caught up with.
func (e *environment) paced(ctx context.Context, workers, rate int, do func()) {
	every := time.Duration(workers) * time.Second / time.Duration(rate)
	timer := time.NewTimer(rand.N(every))
	defer timer.Stop()
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		do()
		if next = next.Add(every); next.Before(time.Now()) {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
	}
}

// transaction locks two rows and writes them.
func (l *lockedLoad) transaction(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
	contended := rand.Float64() < lockedContended
	one, other := rowKey(rand.IntN(lockedCold)), rowKey(rand.IntN(lockedCold))
	if contended {
		i := rand.IntN(*lockedKeys)
		one, other = hotKey(i), hotKey((i+1)%*lockedKeys)
	}
	runs := 0
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		runs++
		for _, key := range [][]byte{one, other} {
			if _, err := tx.GetForUpdate(ctx, ks, key); err != nil {
				return err
			}
		}
		if contended {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(*lockedThink):
			}
		}
		for _, key := range [][]byte{one, other} {
			if err := tx.Put(ks, key, fmt.Appendf(nil, "%d", rand.Uint64())); err != nil {
				return err
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		l.fail(fmt.Errorf("transaction: %w", err))
		return
	}
	l.transactions.Add(1)
	if contended {
		l.contended.Add(1)
		if runs > 1 {
			l.restarted.Add(1)
		}
	}
}

func (l *lockedLoad) sizes() map[string]float64 {
	return map[string]float64{"transactions": float64(l.transactions.Load()),
		"contended": float64(l.contended.Load()), "restarted": float64(l.restarted.Load())}
}

// lockWaits returns the number of requests that have waited for locks, on all nodes.
func (e *environment) lockWaits() map[string]float64 {
	e.Helper()
	all := make(map[string]float64)
	for _, s := range e.cluster.Nodes {
		samples, err := s.Metrics(e.ctx)
		e.must(err, "read the metrics of %s", s.Name)
		for _, what := range []string{"read", "write"} {
			all[what] += sumOf(samples, "tidemark_txn_lock_waits_total", `what="`+what+`"`)
		}
	}
	return all
}

// readLocked reads until ctx ends, one read at a time. So a change of the client's counters belongs
// to that read.
func (e *environment) readLocked(ctx context.Context, ks *kv.Keyspace, c counts,
	load *lockedLoad) map[string]*readsOf {
	found := make(map[string]*readsOf)
	outcomes := c.vecs["tidemark_client_follower_read_outcomes_total"]
	redirects := c.vecs["tidemark_client_follower_read_redirects_total"]
	if outcomes == nil || redirects == nil {
		load.fail(fmt.Errorf("the client does not count replica reads"))
		return found
	}
	nearest, locked := outcomes.With("nearest"), redirects.With("locked")
	kinds := []readKind{{"nearest", []kvtarget.ReadOption{kv.Nearest()}},
		{"bounded", []kvtarget.ReadOption{kv.MaxStaleness(*lockedBound)}}}
	targets := []kvtarget.Target{kvtarget.New(ks, kinds[0].options...),
		kvtarget.New(ks, kinds[1].options...)}
	i := 0
	e.paced(ctx, lockedReaders, *lockedReads, func() {
		i++
		key, name := rowKey(rand.IntN(lockedCold)), kinds[i%2].name+", others"
		if rand.Float64() < lockedRead {
			key, name = hotKey(rand.IntN(*lockedKeys)), kinds[i%2].name+", contended"
		}
		first, met, began := nearest.Value(), locked.Value(), time.Now()
		err := targets[i%2].Get(ctx, key)
		took := max(1, time.Since(began).Microseconds())
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			load.fail(fmt.Errorf("read of %s: %w", key, err))
			return
		}
		r := found[name]
		if r == nil {
			r = &readsOf{whole: newHistogram(), redirected: newHistogram()}
			found[name] = r
		}
		_ = r.whole.RecordValue(took)
		if locked.Value() > met {
			_ = r.redirected.RecordValue(took)
		}
		if nearest.Value() > first {
			r.first++
		} else {
			r.others++
		}
	})
	return found
}
