package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

const (
	// latency of all links, in one direction.
	latency = 300 * time.Microsecond
	// syncDelay is the longest time that the sync of a log takes where no fault makes it longer.
	syncDelay = 2 * time.Millisecond
	// recovery is how long a cluster that is whole again may take to serve, and its replicas to be equal.
	recovery = 90 * time.Second
	// goroutinesPerServer and goroutinesBase bound what a cluster and the clients of a run may have.
	goroutinesPerServer, goroutinesBase = 400, 1500
)

// Config says what a run is.
type Config struct {
	Seed uint64
	// Duration is how much virtual time faults and load have.
	Duration time.Duration
	// Workloads run beside each other. Default: Standard.
	Workloads []Workload
	// FaultEvery is the mean time between two faults; negative: no faults. Default: between one and six seconds, by
	// the seed.
	FaultEvery time.Duration
	// Faults, if not empty, names the kinds that may happen.
	Faults []string
	// Configure may change the servers' configuration further.
	Configure func(server int, c *embedded.ServerConfig)
}

// Report is what came of a run.
type Report struct {
	Seed     uint64
	Cluster  string
	Duration time.Duration
	// Violations are broken guarantees; the history's own are found by checking it.
	Violations []string
	// Log is the end of the servers' logs at the first violation, or at the end of the run.
	Log string
	// Events is what the schedule did, in order.
	Events []string
	// Operations counts by kind and outcome.
	Operations map[string]int
	// Longest is the longest virtual time in which no operation at all succeeded.
	Longest time.Duration
	// Covered says what the servers had to do.
	Covered map[string]int
	History []history.Operation
}

// Standard is the usual traffic.
func Standard() []Workload {
	return []Workload{
		&Registers{Keyspace: "registers", Partitions: 3, Keys: 4, Age: 10 * time.Second, Pause: 150 * time.Millisecond, Parallel: 6, Readers: 4},
		&Registers{Keyspace: "sleepy", Partitions: 4, Keys: 4, Age: 60 * time.Second, Pause: 12 * time.Second, Parallel: 3, Readers: 2},
		&Counters{Keys: 8, Pause: 200 * time.Millisecond, Parallel: 4},
		&Rings{Keyspace: "rings", Writers: 2, Readers: 3, Size: 5, Pause: 100 * time.Millisecond, ReadPause: 400 * time.Millisecond},
		// Here the clocks of leaders are known by what they served, and not by what they wrote.
		&Rings{Keyspace: "slow-rings", Writers: 2, Readers: 3, Size: 4, Pause: 600 * time.Millisecond, ReadPause: 200 * time.Millisecond},
		&Batches{Groups: 5, Size: 4, Pause: 200 * time.Millisecond, Parallel: 4},
	}
}

// shape draws what cluster a seed has.
func (c *Config) shape(random *rand.Rand, counters *coverage) kvtest.Options {
	o := kvtest.Options{Seed: random.Uint64() | 1, Latency: latency, Nodes: 3, Cores: 3}
	switch random.IntN(4) {
	case 0:
		o.Cores = 1
	case 1:
		o.Nodes, o.Separate = 4, true
	case 2:
		o.Nodes = 5
	}
	retain, memTable := int64(16<<10)<<random.IntN(8), uint64(64<<10)<<random.IntN(5)
	sleepAfter := []time.Duration{time.Second, 3 * time.Second, -1}[random.IntN(3)]
	o.Configure = func(server int, s *embedded.ServerConfig) {
		s.RetainLogBytes, s.MemTableBytes, s.SleepAfter = retain, memTable, sleepAfter
		s.Registry = counters.registry()
		if c.Configure != nil {
			c.Configure(server, s)
		}
	}
	return o
}

// Run does one run. It is called inside a synctest bubble.
func Run(t testing.TB, c Config) Report {
	if c.Workloads == nil {
		c.Workloads = Standard()
	}
	random := rand.New(rand.NewPCG(c.Seed, 0))
	var counters coverage
	options := c.shape(random, &counters)
	if c.FaultEvery == 0 {
		c.FaultEvery = []time.Duration{time.Second, 3 * time.Second, 6 * time.Second}[random.IntN(3)]
	}
	w := &World{History: history.NewRecorder(), began: time.Now()}
	w.mu.operations = make(map[string]int)
	w.Cluster = kvtest.Start(t, options)
	for i := range w.Cluster.Servers() {
		w.Cluster.Disk(i).SetSyncDelay(syncDelay)
	}
	ctx := context.Background()
	for _, load := range c.Workloads {
		setup, cancel := context.WithTimeout(ctx, recovery)
		err := load.Setup(setup, w)
		cancel()
		if err != nil {
			t.Fatalf("setting %s up: %v", load.Name(), err)
		}
	}
	stopLoad := drive(t, w, c.Workloads, random)
	runSchedule(w, c, random)
	heal(w)
	stopLoad()
	check(t, w, c.Workloads)

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.log == "" {
		w.mu.log = w.Cluster.Log()
	}
	return Report{
		Log:  w.mu.log,
		Seed: c.Seed, Duration: time.Since(w.began), Violations: w.mu.violations, Events: w.mu.events, Operations: w.mu.operations,
		Longest: w.mu.longest, Covered: counters.sum(), History: w.History.Operations(),
		Cluster: fmt.Sprintf("%d nodes and %d core members on %d servers", options.Nodes, options.Cores, w.Cluster.Servers()),
	}
}

// drive starts the clients; each workload's share a few connections and sessions.
func drive(t testing.TB, w *World, workloads []Workload, random *rand.Rand) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, load := range workloads {
		for i := range load.Clients() {
			source := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			client := w.Cluster.Client(t)
			running.Go(func() { load.Drive(ctx, w, i, client, source) })
		}
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// runSchedule lets faults begin and end until the time is over.
func runSchedule(w *World, c Config, random *rand.Rand) {
	type ending struct {
		at time.Time
		do func() string
	}
	var possible []kind
	total := 0
	for _, k := range kinds {
		if len(c.Faults) == 0 || slices.Contains(c.Faults, k.name) {
			possible = append(possible, k)
			total += k.weight
		}
	}
	end := time.Now().Add(c.Duration)
	next := end
	draw := func() {
		if c.FaultEvery > 0 && total > 0 {
			next = time.Now().Add(time.Duration(random.ExpFloat64() * float64(c.FaultEvery)))
		}
	}
	draw()
	var endings []ending
	for time.Now().Before(end) {
		at := end
		if next.Before(at) {
			at = next
		}
		for _, e := range endings {
			if e.at.Before(at) {
				at = e.at
			}
		}
		time.Sleep(time.Until(at))
		now := time.Now()
		rest := endings[:0]
		for _, e := range endings {
			if e.at.After(now) {
				rest = append(rest, e)
				continue
			}
			w.Event("%s", e.do())
		}
		endings = rest
		if now.Before(next) {
			continue
		}
		n := random.IntN(total)
		for _, k := range possible {
			if n -= k.weight; n >= 0 {
				continue
			}
			did, stop := k.begin(w, random)
			w.Event("%s: %s", k.name, did)
			if stop != nil {
				endings = append(endings, ending{time.Now().Add(time.Duration(random.Int64N(int64(k.longest)))), stop})
			}
			break
		}
		draw()
	}
}

// heal makes the cluster whole again.
func heal(w *World) {
	w.Cluster.HealAll()
	for from := range w.Cluster.Servers() {
		for to := range w.Cluster.Servers() {
			if from != to {
				w.Cluster.Network().SetLatency(w.Cluster.Host(from), w.Cluster.Host(to), latency)
			}
		}
		run(w, from)
	}
	w.Event("all healed")
}

// check looks at everything once nobody writes.
func check(t testing.TB, w *World, workloads []Workload) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	if err := w.Cluster.WaitReady(ctx); err != nil {
		w.Violation("the cluster is whole again and does not become ready: %v", err)
	}
	client := w.Cluster.Client(t)
	for _, load := range workloads {
		if err := load.Check(ctx, w, client); err != nil {
			w.Violation("%s: %v", load.Name(), err)
		}
	}
	for i := range w.Cluster.Servers() {
		checkHealthy(w, i)
	}
	checkReplicas(ctx, w)
	if n, most := runtime.NumGoroutine(), goroutinesBase+goroutinesPerServer*w.Cluster.Servers(); n > most {
		w.Violation("%d goroutines; a cluster like this one has at most %d", n, most)
	}
}

// checkHealthy says whether a server that runs, or one of its replicas, has failed.
func checkHealthy(w *World, server int) {
	p := w.Cluster.Process(server)
	if p == nil {
		return
	}
	if err := p.Err(); err != nil {
		w.Violation("server %d failed: %v", server, err)
	}
	for _, r := range p.Replicas() {
		if r.Failed != nil {
			w.Violation("replica %d of partition %d on server %d failed: %v", r.Replica, r.Partition, server, r.Failed)
		}
	}
}

// checkReplicas waits until all replicas of each partition have applied the same, and compares their checksums.
func checkReplicas(ctx context.Context, w *World) {
	problems := []string{"not looked at yet"}
	for ctx.Err() == nil {
		if problems = compare(w); len(problems) == 0 {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	w.Violation("replicas are not equal %v after the cluster was healed:\n%s", recovery, strings.Join(problems, "\n"))
}

// compare lists where replicas are not at the same index with the same checksum.
func compare(w *World) (problems []string) {
	type copied struct {
		server, peers int
		index, sum    uint64
		leads         bool
	}
	partitions := make(map[uint64][]copied)
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		for _, r := range p.Replicas() {
			index, sum, err := p.Checksum(r.Partition)
			if err != nil {
				if !errors.Is(err, embedded.ErrNoReplica) {
					problems = append(problems, fmt.Sprintf("partition %d on server %d: %v", r.Partition, i, err))
				}
				continue
			}
			partitions[r.Partition] = append(partitions[r.Partition], copied{i, len(r.Peers), index, sum, r.Leads})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		copies := partitions[id]
		equal := len(copies) == copies[0].peers
		for _, c := range copies[1:] {
			equal = equal && c.index == copies[0].index && c.sum == copies[0].sum
			if c.index == copies[0].index && c.sum != copies[0].sum {
				w.Violation("partition %d: at index %d server %d has checksum %x and server %d has %x",
					id, c.index, copies[0].server, copies[0].sum, c.server, c.sum)
			}
		}
		if !equal {
			problems = append(problems, fmt.Sprintf("partition %d of %d replicas: %+v", id, copies[0].peers, copies))
		}
	}
	return problems
}
