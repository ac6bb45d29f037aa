package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	fleetBytes = flag.Int64("faults.fleet-bytes", 1<<30, "how much TestFleet writes, of one copy")
	fleetDelay = flag.Duration("faults.fleet-delay", 30*time.Second,
		"the repair delay that TestFleet sets")
	fleetQuiet = flag.Duration("faults.fleet-quiet", 10*time.Minute,
		"for how long TestFleet sees that nothing moves")
)

const (
	fleetPartitions = 64
	fleetValue      = 4 << 10
	fleetClients    = 24
	fleetAccounts   = 200
	fleetBalance    = 1000
)

// TestFleet makes the usual changes to six data nodes with 64 partitions: one node is lost for
// good, two are added, and two are decommissioned. The load is gets, puts and transfers between
// accounts at half of the cluster's capacity. No operation fails, and no money is lost. The
// duration of each step is reported.
func TestFleet(t *testing.T) {
	e := newEnvironment(t, 90*time.Minute, fleet.Layout{Cores: 1, Nodes: 8})
	for _, s := range append(e.cluster.Cores, e.cluster.Nodes[:6]...) {
		e.must(s.Start(), "start %s", s.Name)
	}
	for _, s := range e.cluster.Nodes[:6] {
		e.must(s.WaitReady(e.ctx), "wait for %s", s.Name)
	}
	client, err := kv.Open(e.ctx, e.cluster.Endpoints()[:1])
	e.must(err, "open a client")
	defer client.Close()
	f := &fleetLoad{environment: e, client: client}
	f.fill()
	f.run()
	capacity := f.capacity()
	f.interval.Store(int64(2 * float64(time.Second) / capacity))
	f.settle(2 * time.Minute)
	before := f.measure("at rest", 20*time.Second)

	settings, err := admin.New(client).LimitPlacement(e.ctx,
		admin.PlacementSettings{RepairDelay: *fleetDelay,
			Pause: 30 * time.Second})
	e.must(err, "set the repair delay")
	lost := e.cluster.Nodes[2]
	id := f.nodeOf(lost)
	held := f.bytesOn(id)
	e.must(lost.Kill(), "kill %s", lost.Name)
	e.must(os.RemoveAll(lost.Dir), "remove the directory of %s", lost.Name)
	began := time.Now()
	// The lease of the lost node runs out before the core declares it dead.
	wanted := settings.RepairDelay + 10*time.Second + 30*time.Second +
		time.Duration(float64(held)/(64<<20)*float64(time.Second))
	during := f.measureUntil("with a node lost, until all replicas are there again", func() bool {
		return f.whole(id)
	})
	f.report("%s lost with %d MiB: all replicas there again after %v, wanted %v", lost.Name, held>>20,
		time.Since(began).Round(time.Second), wanted.Round(time.Second))
	f.compare(before, during)

	began = time.Now()
	for _, s := range e.cluster.Nodes[6:8] {
		e.must(s.Start(), "start %s", s.Name)
		e.must(s.WaitReady(e.ctx), "wait for %s", s.Name)
	}
	during = f.measureUntil("two nodes added, until nothing moves", f.still(90*time.Second))
	f.report("two nodes added: nothing moves any more after %v; %s",
		(time.Since(began) - 90*time.Second).Round(time.Second), f.spread())
	f.compare(before, during)
	newest := f.newest()
	f.measure("nothing is to move", *fleetQuiet)
	if after := f.newest(); after != newest {
		e.Errorf("%d changes in %v in which nothing was to move", after-newest, *fleetQuiet)
	}

	for _, s := range e.cluster.Nodes[:2] {
		id := f.nodeOf(s)
		_, err := admin.New(client).SetNodeStatus(e.ctx, id, admin.NodeDecommissioning)
		e.must(err, "decommission %s", s.Name)
	}
	began = time.Now()
	during = f.measureUntil("two nodes decommissioned", func() bool {
		return f.gone(e.cluster.Nodes[0]) && f.gone(e.cluster.Nodes[1])
	})
	f.report("two nodes decommissioned after %v", time.Since(began).Round(time.Second))
	f.compare(before, during)
	for _, s := range e.cluster.Nodes[:2] {
		e.must(s.Stop(20*time.Second), "stop %s", s.Name)
		e.must(os.RemoveAll(s.Dir), "remove the directory of %s", s.Name)
	}
	f.measure("without them", 10*time.Second)
	f.end()
}

// fleetLoad is the load, and the known state of the cluster.
type fleetLoad struct {
	*environment
	client     *kv.Client
	rows, bank *kv.Keyspace
	keys       int
	// interval is the time between two operations of all clients together, in nanoseconds; 0: none.
	interval      atomic.Int64
	next          time.Time // guarded by mu
	stop          context.CancelFunc
	running       sync.WaitGroup
	done, failed  atomic.Int64
	lastErr       atomic.Pointer[error]
	mu            sync.Mutex
	reads, writes *hdrhistogram.Histogram
}

func (f *fleetLoad) report(format string, arguments ...any) {
	f.Helper()
	f.result(format, arguments...)
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
}

func rowKey(i int) []byte { return fmt.Appendf(nil, "row-%08d", i) }

func accountKey(i int) []byte { return fmt.Appendf(nil, "account-%04d", i) }

// fill makes the keyspaces and their contents.
func (f *fleetLoad) fill() {
	var err error
	f.rows, err = f.client.CreateKeyspace(f.ctx, "rows", kv.Hash(fleetPartitions))
	f.must(err, "create a keyspace")
	f.bank, err = f.client.CreateKeyspace(f.ctx, "bank", kv.Hash(8))
	f.must(err, "create a keyspace")
	f.keys = int(*fleetBytes / fleetValue)
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(64)
	for i := range f.keys {
		group.Go(func() error {
			_, err := f.rows.Put(f.ctx, rowKey(i), randomValue())
			return err
		})
	}
	for i := range fleetAccounts {
		group.Go(func() error {
			_, err := f.bank.Put(f.ctx, accountKey(i), balance(fleetBalance))
			return err
		})
	}
	f.must(group.Wait(), "fill the keyspaces")
	f.report("filled %d MiB in %v", *fleetBytes>>20, time.Since(began).Round(time.Second))
}

func randomValue() []byte {
	value := make([]byte, fleetValue)
	for i := 0; i < len(value); i += 8 {
		binary.LittleEndian.PutUint64(value[i:], rand.Uint64())
	}
	return value
}

func balance(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// run starts the load.
func (f *fleetLoad) run() {
	ctx, cancel := context.WithCancel(f.ctx)
	f.stop = cancel
	f.reads, f.writes = newHistogram(), newHistogram()
	for range fleetClients {
		f.running.Go(func() {
			for ctx.Err() == nil {
				f.await(ctx)
				f.one(ctx)
			}
		})
	}
}

// await waits until the next operation is due.
func (f *fleetLoad) await(ctx context.Context) {
	interval := time.Duration(f.interval.Load())
	if interval == 0 {
		return
	}
	f.mu.Lock()
	at := f.next
	if behind := time.Now().Add(-time.Second); at.Before(behind) {
		at = behind // a delay of more than this is not caught up with
	}
	f.next = at.Add(interval)
	f.mu.Unlock()
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
	}
}

func (f *fleetLoad) one(ctx context.Context) {
	began := time.Now()
	var err error
	read := false
	switch n := rand.IntN(20); {
	case n < 10:
		read = true
		_, err = f.rows.Get(ctx, rowKey(rand.IntN(f.keys)))
	case n < 19:
		_, err = f.rows.Put(ctx, rowKey(rand.IntN(f.keys)), randomValue())
	default:
		f.note(ctx, f.transfer(ctx))
		return
	}
	took := max(1, int64(time.Since(began)/time.Microsecond))
	f.mu.Lock()
	if read {
		_ = f.reads.RecordValue(took)
	} else {
		_ = f.writes.RecordValue(took)
	}
	f.mu.Unlock()
	f.note(ctx, err)
}

func (f *fleetLoad) note(ctx context.Context, err error) {
	f.done.Add(1)
	if err != nil && ctx.Err() == nil {
		f.failed.Add(1)
		f.lastErr.Store(&err)
	}
}

// transfer moves money from one account to another.
func (f *fleetLoad) transfer(ctx context.Context) error {
	from, to := rand.IntN(fleetAccounts), rand.IntN(fleetAccounts)
	if from == to {
		return nil
	}
	_, err := f.client.Update(ctx, func(tx *kv.Txn) error {
		a, err := tx.Get(ctx, f.bank, accountKey(from))
		if err != nil {
			return err
		}
		b, err := tx.Get(ctx, f.bank, accountKey(to))
		if err != nil {
			return err
		}
		x, y := int64(binary.BigEndian.Uint64(a.Value)), int64(binary.BigEndian.Uint64(b.Value))
		if x == 0 {
			return nil
		}
		return errors.Join(tx.Put(f.bank, accountKey(from), balance(x-1)),
			tx.Put(f.bank, accountKey(to), balance(y+1)))
	})
	return err
}

// capacity measures how many operations the cluster does in a second for this number of clients.
func (f *fleetLoad) capacity() float64 {
	f.pass(5 * time.Second)
	before, began := f.done.Load(), time.Now()
	f.pass(15 * time.Second)
	capacity := float64(f.done.Load()-before) / time.Since(began).Seconds()
	f.report("capacity: %.0f operations a second", capacity)
	return capacity
}

// worst has the highest 99th percentiles of a period.
type worst struct{ read, write time.Duration }

func (f *fleetLoad) measure(what string, d time.Duration) worst {
	f.Helper()
	began := time.Now()
	return f.measureUntil(what, func() bool { return time.Since(began) >= d })
}

// measureUntil measures until over returns true.
func (f *fleetLoad) measureUntil(what string, over func() bool) worst {
	f.Helper()
	f.mu.Lock()
	f.reads, f.writes = newHistogram(), newHistogram()
	f.mu.Unlock()
	done, failed, began := f.done.Load(), f.failed.Load(), time.Now()
	for !over() {
		if f.ctx.Err() != nil {
			f.Fatalf("%s: it took too long", what)
		}
		f.pass(500 * time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p99 := func(h *hdrhistogram.Histogram) time.Duration {
		return time.Duration(h.ValueAtQuantile(99)) * time.Microsecond
	}
	l := worst{p99(f.reads), p99(f.writes)}
	f.report("%s: %.0f operations a second for %v, p99 of reads %v and of writes %v "+
		"(longest %v and %v)",
		what, float64(f.done.Load()-done)/time.Since(began).Seconds(),
		time.Since(began).Round(time.Second), l.read, l.write,
		time.Duration(f.reads.Max())*time.Microsecond, time.Duration(f.writes.Max())*time.Microsecond)
	if n := f.failed.Load() - failed; n > 0 {
		f.Errorf("%s: %d operations failed, the last with %v", what, n, *f.lastErr.Load())
	}
	return l
}

func (f *fleetLoad) compare(before, during worst) {
	f.report("p99 beside that at rest: reads %.1f times, writes %.1f times",
		float64(during.read)/float64(before.read), float64(during.write)/float64(before.write))
}

func (f *fleetLoad) nodeOf(s *fleet.Server) uint64 {
	nodes, err := admin.New(f.client).Nodes(f.ctx)
	f.must(err, "list the nodes")
	for _, n := range nodes {
		if n.Address == s.Address() {
			return n.ID
		}
	}
	f.Fatalf("%s is no node", s.Name)
	return 0
}

func (f *fleetLoad) bytesOn(node uint64) (bytes uint64) {
	partitions, err := admin.New(f.client).Partitions(f.ctx, "")
	f.must(err, "list the partitions")
	for _, p := range partitions {
		for _, r := range p.Replicas {
			if r.Node == node {
				bytes += p.SizeBytes
			}
		}
	}
	return bytes
}

// whole says whether all replicas exist, on nodes that are not lost.
func (f *fleetLoad) whole(lost ...uint64) bool {
	whole, err := driver.Whole(f.ctx, f.client, lost...)
	f.must(err, "look for all replicas")
	return whole
}

// newest returns the number of the newest event about a change.
func (f *fleetLoad) newest() uint64 {
	events, err := admin.New(f.client).Events(f.ctx, 0, 0, 100)
	f.must(err, "list the events")
	for _, event := range events {
		if event.Operator != 0 {
			return event.Number
		}
	}
	return 0
}

// still returns a function that says whether, for the time d, nothing has changed and nothing was
// under way.
func (f *fleetLoad) still(d time.Duration) func() bool {
	newest, since := f.newest(), time.Now()
	return func() bool {
		operators, err := admin.New(f.client).Operators(f.ctx)
		f.must(err, "list the operators")
		if now := f.newest(); now != newest || len(operators) > 0 {
			newest, since = now, time.Now()
		}
		return time.Since(since) >= d
	}
}

func (f *fleetLoad) settle(limit time.Duration) {
	still := f.still(15 * time.Second)
	f.wait(limit, "nothing moves", func(context.Context) error {
		if !still() || !f.whole() {
			return errors.New("replicas still move")
		}
		return nil
	})
}

// spread describes how evenly the nodes are loaded.
func (f *fleetLoad) spread() string {
	partitions, err := admin.New(f.client).Partitions(f.ctx, "")
	f.must(err, "list the partitions")
	replicas, leaders, bytes := map[uint64]float64{}, map[uint64]float64{}, map[uint64]float64{}
	nodes, err := admin.New(f.client).Nodes(f.ctx)
	f.must(err, "list the nodes")
	for _, n := range nodes {
		if n.Alive && n.Status == admin.NodeActive {
			replicas[n.ID], leaders[n.ID], bytes[n.ID] = 0, 0, 0
		}
	}
	for _, p := range partitions {
		leaders[p.Leader]++
		for _, r := range p.Replicas {
			replicas[r.Node]++
			bytes[r.Node] += float64(p.SizeBytes)
		}
	}
	off := func(of map[uint64]float64) string {
		sum, least, most := 0.0, 1e300, 0.0
		for _, n := range of {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		mean := sum / float64(len(of))
		return fmt.Sprintf("%+.0f to %+.0f %%", 100*(least/mean-1), 100*(most/mean-1))
	}
	return fmt.Sprintf("from even: replicas %s, bytes %s, leaders %s", off(replicas), off(bytes),
		off(leaders))
}

func (f *fleetLoad) gone(s *fleet.Server) bool {
	nodes, err := admin.New(f.client).Nodes(f.ctx)
	f.must(err, "list the nodes")
	for _, n := range nodes {
		if n.Address == s.Address() {
			return n.Status == admin.NodeGone
		}
	}
	return false
}

// end ends the load, and adds up the money.
func (f *fleetLoad) end() {
	f.stop()
	f.running.Wait()
	sum := int64(0)
	for i := range fleetAccounts {
		v, err := f.bank.Get(f.ctx, accountKey(i))
		f.must(err, "read an account")
		sum += int64(binary.BigEndian.Uint64(v.Value))
	}
	if sum != fleetAccounts*fleetBalance {
		f.Errorf("the accounts have %d, want %d", sum, fleetAccounts*fleetBalance)
	}
	n, err := f.rows.Count(f.ctx)
	f.must(err, "count the rows")
	if n != uint64(f.keys) {
		f.Errorf("there are %d rows, want %d", n, f.keys)
	}
	f.report("%d operations, %d failed", f.done.Load(), f.failed.Load())
}
