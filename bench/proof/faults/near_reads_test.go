package faults

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	nearClients = flag.Int("faults.near-clients", 64, "how many clients TestNearReads has")
	nearTurn    = flag.Duration("faults.near-turn", 8*time.Second,
		"how long a turn of TestNearReads is")
	nearTurns = flag.Int("faults.near-turns", 3,
		"how many turns TestNearReads gives each kind of read")
	nearRecords = flag.Uint64("faults.near-records", 50_000,
		"how many records TestNearReads reads")
	nearPartitions = flag.Uint("faults.near-partitions", 24, "in how many partitions they lie")
	nearCost       = flag.Float64("faults.near-cost", 0.8,
		"what nearest reads may cost the servers, compared with leader reads")
	nearEven = flag.Float64("faults.near-even", 0.2,
		"by which part of its fair share a server may have more or fewer nearest reads")
	zoneClients = flag.Int("faults.zone-clients", 4, "how many clients TestNearReadsInZones has")
	zoneWay     = flag.Duration("faults.zone-way", 250*time.Microsecond,
		"how long the way from one zone to another is, there, and as long back")
	zoneMedian = flag.Float64("faults.zone-median", 0.3,
		"what the median of nearest reads may be in zone a, compared with leader reads")
)

// nearLeast is the shortest turn whose figures are judged: processor time is reported in hundredths
// of a second.
const nearLeast = 4 * time.Second

// readKind is a kind of reads that is measured.
type readKind struct {
	name    string
	options []kvtarget.ReadOption
}

// readKinds returns the kinds that are compared, in turns.
func readKinds() []readKind {
	return []readKind{{name: "leader"},
		{name: "nearest", options: []kvtarget.ReadOption{kv.Nearest()}}}
}

// readTurns has the results of all turns of one kind.
type readTurns struct {
	operations, errors float64
	seconds, processor float64
	// p50, p99 and longest have a value for each turn, in microseconds.
	p50, p99, longest []int64
	// reads has the reads of each server.
	reads    []replicaReads
	outcomes map[string]float64
}

// perOperation returns the servers' processor time for each operation, in microseconds.
func (r *readTurns) perOperation() float64 { return 1e6 * r.processor / r.operations }

// shares returns the share of the reads that each server has answered.
func (r *readTurns) shares() (shares []float64) {
	total := 0.0
	for _, s := range r.reads {
		total += s.leading + s.closed
	}
	for _, s := range r.reads {
		shares = append(shares, (s.leading+s.closed)/max(total, 1))
	}
	return shares
}

// median returns the median of the turns.
func median(of []int64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return time.Duration(sorted[len(sorted)/2]) * time.Microsecond
}

func (r *readTurns) String() string {
	var shares []string
	closed := 0.0
	for i, share := range r.shares() {
		shares = append(shares, fmt.Sprintf("%.1f", 100*share))
		closed += r.reads[i].closed
	}
	return fmt.Sprintf("%.0f operations, %.0f a second, p50 %v, p99 %v, longest %v; processor time "+
		"of the servers %.1f µs an operation (%.2f processors); the servers answered %s %% of them, "+
		"%.1f %% at closed timestamps, without a lease; outcomes %v; %.0f failed", r.operations,
		r.operations/r.seconds,
		median(r.p50), median(r.p99), time.Duration(slices.Max(r.longest))*time.Microsecond,
		r.perOperation(), r.processor/r.seconds, strings.Join(shares, ", "), 100*closed/r.operations,
		r.outcomes, r.errors)
}

// nodeSeconds returns the processor time of all nodes, in seconds.
func (e *environment) nodeSeconds() (sum float64) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		usage, err := s.Process().Usage()
		e.must(err, "processor time of %s", s.Name)
		sum += usage.CPUSeconds()
	}
	return sum
}

// readsServed returns the reads that each node has served.
func (e *environment) readsServed() (all []replicaReads) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		r, err := readsAt(e.ctx, s)
		e.must(err, "read the metrics of %s", s.Name)
		all = append(all, r)
	}
	return all
}

// readConfig is random reads of all records.
func readConfig(clients int, d time.Duration, seed uint64) bench.Config {
	return bench.Config{Workload: bench.Get(), Records: *nearRecords, Clients: clients, Duration: d,
		WarmUp: -1, SkipLoad: true, Seed: seed, Classify: kvtarget.Classify}
}

// loadClosed loads the records, and waits until all replicas serve them.
func (e *environment) loadClosed(ks *kv.Keyspace) {
	e.Helper()
	e.must(bench.Load(e.ctx, kvtarget.New(ks), readConfig(0, time.Second, 1)), "load the records")
	for range 3 { // any replica may answer
		e.wait(30*time.Second, "replicas have all records", func(ctx context.Context) error {
			n, err := ks.Count(ctx, kv.Nearest())
			if err == nil && n != *nearRecords {
				err = fmt.Errorf("counted %d of %d records", n, *nearRecords)
			}
			return err
		})
	}
}

// readInTurns measures the kinds in turns. Before that each kind has a turn that does not count.
func (e *environment) readInTurns(ks *kv.Keyspace, counted counts,
	clients int) map[string]*readTurns {
	e.Helper()
	all := make(map[string]*readTurns)
	for turn := range *nearTurns + 1 {
		for _, kind := range readKinds() {
			d := *nearTurn
			if turn == 0 {
				d = min(d, 2*time.Second)
			}
			const outcomes = "tidemark_client_follower_read_outcomes_total"
			served, ended := e.readsServed(), counted.all(outcomes)
			spent, began := e.nodeSeconds(), time.Now()
			r, err := bench.Run(e.ctx, kvtarget.New(ks, kind.options...),
				readConfig(clients, d, uint64(turn+1)))
			took := time.Since(began)
			spent = e.nodeSeconds() - spent
			e.must(err, "%s reads", kind.name)
			if turn == 0 {
				continue
			}
			t := all[kind.name]
			if t == nil {
				t = &readTurns{reads: make([]replicaReads, len(e.cluster.Nodes)),
					outcomes: make(map[string]float64)}
				all[kind.name] = t
			}
			t.operations += float64(r.Total.Count)
			t.errors += float64(r.Total.Errors)
			t.seconds += took.Seconds()
			t.processor += spent
			t.p50, t.p99 = append(t.p50, r.Total.P50), append(t.p99, r.Total.P99)
			t.longest = append(t.longest, r.Total.Max)
			for i, now := range e.readsServed() {
				t.reads[i].leading += now.leading - served[i].leading
				t.reads[i].closed += now.closed - served[i].closed
			}
			for outcome, n := range less(counted.all(outcomes), ended) {
				t.outcomes[outcome] += n
			}
			e.Logf("turn %d, %s: %.0f operations a second, p50 %d µs, p99 %d µs, %.1f µs of the servers "+
				"an operation", turn, kind.name, r.Total.Throughput, r.Total.P50, r.Total.P99,
				1e6*spent/float64(max(r.Total.Count, 1)))
			if r.Total.Errors > 0 {
				e.Errorf("%d %s reads failed, for example: %s", r.Total.Errors, kind.name,
					r.Total.Failures[0].Example)
			}
			if r.Total.Count == 0 {
				e.Fatalf("no %s read succeeded", kind.name)
			}
		}
	}
	for _, kind := range readKinds() {
		e.result("%d clients, %s reads: %v", clients, kind.name, all[kind.name])
	}
	return all
}

// TestNearReads compares the servers' cost of gets of random keys that any replica may answer with
// the cost of gets that leaders answer: 64 clients, three servers on one machine, in turns. It
// reports how evenly the work is distributed.
func TestNearReads(t *testing.T) {
	e := newEnvironment(t, time.Duration(2**nearTurns)**nearTurn+5*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start("read", uint32(*nearPartitions), 3)
	client, counted := e.openClient()
	ks := client.Keyspace("read")
	e.loadClosed(ks)
	idle := e.nodeSeconds()
	e.pass(2 * time.Second)
	e.result("idle servers: %.3f processors", (e.nodeSeconds()-idle)/2)
	all := e.readInTurns(ks, counted, *nearClients)
	e.leadersOf("read")
	cost := all["nearest"].perOperation() / all["leader"].perOperation()
	even := 0.0
	fair := 1 / float64(len(e.cluster.Nodes))
	for _, share := range all["nearest"].shares() {
		even = max(even, share/fair-1, 1-share/fair)
	}
	e.result("nearest reads cost the servers %.2f times the processor time of leader reads "+
		"(allowed: %.2f); shares are at most %.1f %% from even (allowed: %.0f)", cost, *nearCost,
		100*even, 100**nearEven)
	if *nearTurn < nearLeast {
		e.Logf("turns of %v are too short to judge", *nearTurn)
		return
	}
	if cost > *nearCost {
		e.Errorf("nearest reads cost %.2f times what leader reads cost, allowed are %.2f",
			cost, *nearCost)
	}
	if even > *nearEven {
		e.Errorf("a server has %.0f %% more or less than its share, allowed are %.0f", 100*even,
			100**nearEven)
	}
}

// leadersOf reports how many partitions each server leads.
func (e *environment) leadersOf(keyspace string) {
	e.Helper()
	led, err := e.admin.LeaderCounts(e.ctx, keyspace)
	e.must(err, "count the leaders")
	var each []string
	for _, s := range e.cluster.Nodes {
		each = append(each, fmt.Sprint(led[s]))
	}
	e.result("the servers lead %s partitions", strings.Join(each, ", "))
}

// TestNearReadsInZones has three servers in the zones a, b and c, and the clients in zone a. The
// round trip between zones takes 500 µs. The median latency of gets that any replica may answer is
// compared with that of gets that leaders answer. All connections go through a proxy, also within
// the zone.
func TestNearReadsInZones(t *testing.T) {
	network, err := links.NewProxies(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the servers have ended
		if err := network.Close(); err != nil {
			t.Errorf("close the proxies: %v", err)
		}
	})
	layout := threeServers()
	layout.Configure = func(i int, s *fleet.Server) {
		a := network.Address(links.Host(i))
		s.Roles, s.Listen, s.HTTP, s.Advertise = "core,node", a.Listen, a.HTTP, a.Advertise
		s.Flags = []string{"--locality", "zone=" + string(rune('a'+i))}
	}
	e := newEnvironment(t, time.Duration(2**nearTurns)**nearTurn+5*time.Minute, layout)
	shareCore(e.cluster)
	far := make(map[links.Link]links.Shape)
	hosts := []links.Host{links.Clients, 0, 1, 2}
	for _, from := range hosts {
		for _, to := range hosts {
			if zoneOf(from) != zoneOf(to) {
				far[links.Link{From: from, To: to}] = links.Shape{Delay: *zoneWay}
			}
		}
	}
	e.must(network.Set(far), "make the ways between zones longer")
	for i, s := range e.cluster.Nodes {
		e.must(s.Start(), "start %s", s.Name)
		network.Started(links.Host(i), s.Process().PID())
	}
	ready, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.WaitReady(ready), "wait for the servers")
	e.must(e.admin.CreateKeyspace(ready, "read", uint32(*nearPartitions), 3), "create the keyspace")
	client, counted := e.openClient(kv.Locality("", "a"))
	ks := client.Keyspace("read")
	e.loadClosed(ks)
	all := e.readInTurns(ks, counted, *zoneClients)
	e.leadersOf("read")
	latencies, err := admin.New(client).NodeLatencies(e.ctx)
	e.must(err, "measure how far away the servers are")
	var within, apart time.Duration
	for _, l := range latencies {
		if l.SameZone {
			within = l.Latency
		} else {
			apart = max(apart, l.Latency)
		}
		e.result("node %d in zone %s answers a small request after %v", l.Node, l.Zone,
			l.Latency.Round(time.Microsecond))
	}
	near, leader := median(all["nearest"].p50), median(all["leader"].p50)
	ratio := float64(near) / float64(leader)
	e.result("%d clients in zone a, %v from zone to zone and back: the median of nearest reads is "+
		"%v, of leader reads %v: %.2f times as much (allowed: %.2f); zone a answered %.1f %% of the "+
		"nearest reads",
		*zoneClients, 2**zoneWay, near, leader, ratio, *zoneMedian, 100*all["nearest"].shares()[0])
	if share := all["nearest"].shares()[0]; share < 0.99 {
		e.Errorf("zone a has answered %.1f %% of the nearest reads", 100*share)
	}
	// A busy machine delays the proxies, and then reads at leaders look slower than they are.
	if longest := 3 * *zoneWay; apart-within > longest {
		e.Errorf("the way to another zone and back takes %v longer than within the zone, and not at "+
			"most %v: the medians cannot be compared", apart-within, longest)
	}
	if *nearTurn >= nearLeast && ratio > *zoneMedian {
		e.Errorf("the median of nearest reads is %.2f times that of leader reads, allowed are %.2f",
			ratio, *zoneMedian)
	}
}

// zoneOf returns the number of a host's zone, from 0. The clients are in the zone of the first
// server.
func zoneOf(h links.Host) int { return max(int(h), 0) }

// openClient opens a client with options and with counters. The client is closed when the test
// ends.
func (e *environment) openClient(options ...kv.Option) (*kv.Client, counts) {
	e.Helper()
	c := newCounts()
	client, err := kv.Open(e.ctx, e.cluster.Endpoints(), append(options, kv.Metrics(c))...)
	e.must(err, "open a client")
	e.Cleanup(func() {
		if err := client.Close(); err != nil {
			e.Errorf("close the client: %v", err)
		}
	})
	return client, c
}
