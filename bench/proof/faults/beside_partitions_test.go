package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var besidePartitions = flag.Int("beside.partitions", 10_000,
	"how many partitions TestPutsBesidePartitions creates and drops")
var besideMoves = flag.Int("beside.moves", 500, "how many replicas it moves")

// latencies has the latencies of puts by phase.
type latencies struct {
	mu    sync.Mutex
	phase string
	of    map[string][]time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[l.phase] = append(l.of[l.phase], d)
}

// enter begins a phase.
func (l *latencies) enter(phase string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = phase
}

// text describes the latencies of a phase.
func (l *latencies) text(phase string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Sorted(slices.Values(l.of[phase]))
	if len(all) == 0 {
		return "no puts"
	}
	at := func(share float64) time.Duration {
		return all[min(len(all)-1, int(share*float64(len(all))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d puts, median %v, 99%% within %v, 99.9%% within %v, longest %v", len(all),
		at(0.5), at(0.99), at(0.999), at(1))
}

// TestPutsBesidePartitions creates ten thousand partitions, moves some of their replicas, and drops
// all partitions, while puts to another keyspace go on. No put fails. The memtables are flushed now
// and then, not for each replica. The latencies of the puts are reported.
func TestPutsBesidePartitions(t *testing.T) {
	e := newEnvironment(t, 15*time.Minute, fleet.Layout{Cores: 1, Nodes: 4})
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.Start(ctx), "start the cluster")
	client, err := kv.Open(ctx, e.cluster.Endpoints(), kv.RequestTimeout(time.Minute))
	e.must(err, "open a client")
	defer client.Close()
	steady, err := client.CreateKeyspace(e.ctx, "steady", kv.Hash(8))
	e.must(err, "create the keyspace of the puts")

	puts := &latencies{phase: "before", of: map[string][]time.Duration{}}
	writing, stop := context.WithCancel(e.ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for w := range 8 {
		writers.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				began := time.Now()
				_, err := steady.Put(e.ctx, fmt.Appendf(nil, "key %d %d", w, i%1000), make([]byte, 200))
				if err != nil {
					if writing.Err() == nil {
						t.Errorf("a put: %v", err)
					}
					return
				}
				puts.add(time.Since(began))
				select { // a steady rate, so that a put that waits shows in its own latency
				case <-writing.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	during := func(phase string, do func()) {
		t.Helper()
		before, began := e.flushes(), time.Now()
		puts.enter(phase)
		do()
		took := time.Since(began)
		puts.enter("between")
		flushes := e.flushes() - before
		e.result("%s (%v): %s; %.0f flushes of the states", phase, took.Round(10*time.Millisecond),
			puts.text(phase), flushes)
		// Each node may flush a few memtables in each pause of two seconds (range/node).
		if most := float64(len(e.cluster.Nodes)) * (12 + 4*took.Seconds()/2); flushes > most {
			t.Errorf("%s: %.0f flushes, at most %.0f expected", phase, flushes, most)
		}
	}
	during("before", func() {
		e.wait(time.Minute, "puts for comparison", func(context.Context) error {
			puts.mu.Lock()
			defer puts.mu.Unlock()
			if n := len(puts.of["before"]); n < 5000 {
				return fmt.Errorf("%d puts", n)
			}
			return nil
		})
	})
	var many *kv.Keyspace
	during("create", func() {
		many, err = client.CreateKeyspace(e.ctx, "many", kv.Hash(*besidePartitions))
		e.must(err, "create %d partitions", *besidePartitions)
	})
	for i := range 2000 {
		_, err := many.Put(e.ctx, fmt.Appendf(nil, "key %d", i), []byte("value"))
		e.must(err, "a put to one of many partitions")
	}
	during("move", func() { e.moveMany(client, "many", *besideMoves) })
	n, err := many.Count(e.ctx)
	e.must(err, "count")
	if n != 2000 {
		t.Errorf("%d rows after the moves", n)
	}
	during("drop", func() {
		e.must(client.DropKeyspace(e.ctx, "many"), "drop")
		e.wait(5*time.Minute, "the replicas to be gone", func(ctx context.Context) error {
			for _, s := range e.cluster.Nodes {
				left, err := metricSum(ctx, s, "tidemark_node_replicas", "")
				if err == nil && left > 8 {
					err = fmt.Errorf("%s has %.0f replicas", s.Name, left)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	e.result("memory: %d MiB resident in %d nodes", e.residentBytes()>>20, len(e.cluster.Nodes))
}

// moveMany moves one replica of each of some partitions to the node that has none, and waits for
// the moves.
func (e *environment) moveMany(client *kv.Client, keyspace string, n int) {
	e.Helper()
	all, err := admin.New(client).Partitions(e.ctx, keyspace)
	e.must(err, "list the partitions")
	nodes, err := admin.New(client).Nodes(e.ctx)
	e.must(err, "list the nodes")
	moved := 0
	for _, p := range all[:min(n, len(all))] {
		for _, node := range nodes {
			if !slices.ContainsFunc(p.Replicas, func(r admin.ReplicaInfo) bool {
				return r.Node == node.ID
			}) {
				err := admin.New(client).MoveReplica(e.ctx, p.ID, p.Replicas[len(p.Replicas)-1].Node,
					node.ID)
				if !errors.Is(err, kv.ErrInvalidArgument) { // the planner has moved it already
					e.must(err, "move a replica of partition %d", p.ID)
					moved++
				}
				break
			}
		}
	}
	if moved < min(n, len(all))/2 {
		e.Errorf("only %d replicas were to be moved by the test", moved)
	}
	e.wait(8*time.Minute, "the moves to end", func(ctx context.Context) error {
		left, err := admin.New(client).Operators(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are under way", len(left))
		}
		return err
	})
}

// flushes returns the number of memtables with states that the nodes have flushed.
func (e *environment) flushes() (sum float64) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		n, err := metricSum(e.ctx, s, "tidemark_engine_flushes_total", "state")
		e.must(err, "metrics of %s", s.Name)
		sum += n
	}
	return sum
}

// metricSum adds up the samples of a metric whose labels contain a text.
func metricSum(ctx context.Context, s *fleet.Server, name, label string) (sum float64, err error) {
	samples, err := s.Metrics(ctx)
	found := false
	for _, sample := range samples {
		if sample.Name == name && strings.Contains(sample.Labels, label) {
			sum, found = sum+sample.Value, true
		}
	}
	if err == nil && !found {
		err = fmt.Errorf("%s has no metric %s", s.Name, name)
	}
	return sum, err
}
