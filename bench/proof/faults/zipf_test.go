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
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	zipfFor = flag.Duration("faults.zipf", 8*time.Minute,
		"for how long TestZipf has partitions split and spread, at most")
	zipfMeasure = flag.Duration("faults.zipf-measure", 30*time.Second,
		"for how long TestZipf measures, without splits and at the end")
	zipfClients = flag.Int("faults.zipf-clients", 16, "how many clients TestZipf has")
	zipfLoad    = flag.Float64("faults.zipf-load", 0.25,
		"the load of a partition that TestZipf accepts at the end, in processors")
)

const (
	zipfNodes   = 6
	zipfRecords = 50_000
)

// TestZipf reads and writes a keyspace of one partition by a Zipfian distribution, with six nodes.
// The keyspace splits, and the new partitions move to other nodes, until no partition costs more
// than a quarter of a processor, except partitions of one key. The share of each node in the
// requests is compared with the shares for a keyspace that does not split. (Throughput is reported;
// it means something only if the nodes have their own processors.)
func TestZipf(t *testing.T) {
	e := newEnvironment(t, *zipfFor+10*time.Minute, fleet.Layout{Cores: 1, Nodes: zipfNodes})
	e.start("unused", 1, 3)
	client := e.open("unused").client
	whole, err := client.CreateKeyspace(e.ctx, "whole", kv.Range(), kv.AutoSplit(false))
	e.must(err, "create a keyspace")
	spread, err := client.CreateKeyspace(e.ctx, "spread", kv.Range())
	e.must(err, "create a keyspace")

	before := e.zipf(whole, *zipfMeasure, false)
	e.result("without splits: %s", before)

	e.must(bench.Load(e.ctx, kvtarget.New(spread), zipfConfig(0)), "load the records")
	loading, stop := context.WithCancel(e.ctx)
	defer stop()
	over := make(chan error, 1)
	go func() {
		c := zipfConfig(*zipfFor + time.Minute)
		c.SkipLoad = true
		_, err := bench.Run(loading, kvtarget.New(spread), c)
		over <- err
	}()
	began := time.Now()
	var busy string
	for calm := 0; calm < 3 && time.Since(began) < *zipfFor; {
		e.pass(10 * time.Second)
		var heaviest float64
		heaviest, busy = e.loads(client, "spread")
		if time.Since(began)/time.Second%30 < 10 {
			e.Logf("after %v: %s", time.Since(began).Round(time.Second), busy)
		}
		if calm++; heaviest > *zipfLoad || time.Since(began) < 2*time.Minute {
			calm = 0
		}
	}
	took := time.Since(began).Round(time.Second)
	stop()
	<-over
	after := e.zipf(spread, *zipfMeasure, true)
	e.result("split and spread after %v: %s; %.2f times as many requests; %s", took, after,
		after.throughput/before.throughput, busy)
	events, err := admin.New(client).Events(e.ctx, 0, 0, 1000)
	e.must(err, "list what placement did")
	kinds := map[string]int{}
	for _, event := range events {
		if event.Keyspace == "spread" {
			kinds[event.Kind]++
		}
	}
	e.result("placement did: %v", kinds)
	heaviest, busy := e.loads(client, "spread")
	switch {
	case heaviest > *zipfLoad:
		e.Errorf("a partition costs %.2f processors, allowed are %.2f: %s", heaviest, *zipfLoad, busy)
	case after.shares[0] > 1/1.5*before.shares[0]:
		e.Errorf("one node has %.0f %% of the requests, and had %.0f %% without splits",
			100*after.shares[0], 100*before.shares[0])
	}
	if n := before.errors + after.errors; n > 0 {
		e.Errorf("%d operations failed", n)
	}
}

// zipfConfig is half reads and half updates; a few records get most of the operations.
func zipfConfig(d time.Duration) bench.Config {
	w, _ := bench.YCSB("a")
	return bench.Config{Workload: w, Records: zipfRecords, Clients: *zipfClients, Duration: d,
		WarmUp: -1, Classify: kvtarget.Classify}
}

// zipfResult has the results of a measurement. The shares of the nodes are in falling order.
type zipfResult struct {
	throughput float64
	p99        time.Duration
	shares     []float64
	errors     uint64
}

func (r zipfResult) String() string {
	var parts []string
	for _, share := range r.shares {
		parts = append(parts, fmt.Sprintf("%.0f", 100*share))
	}
	return fmt.Sprintf("%.0f operations a second, p99 %v, of which the nodes have %s %%",
		r.throughput, r.p99.Round(100*time.Microsecond), strings.Join(parts, ", "))
}

// zipf measures one keyspace.
func (e *environment) zipf(ks *kv.Keyspace, d time.Duration, loaded bool) zipfResult {
	e.Helper()
	if !loaded {
		e.must(bench.Load(e.ctx, kvtarget.New(ks), zipfConfig(0)), "load the records")
	}
	c := zipfConfig(d)
	c.SkipLoad = true
	requests := e.requests()
	r, err := bench.Run(e.ctx, kvtarget.New(ks), c)
	e.must(err, "run the load")
	now := e.requests()
	result := zipfResult{throughput: r.Total.Throughput, errors: r.Total.Errors,
		p99: time.Duration(r.Total.P99) * time.Microsecond}
	total := 0.0
	for i := range now {
		now[i] -= requests[i]
		total += now[i]
	}
	for _, n := range now {
		result.shares = append(result.shares, n/total)
	}
	slices.SortFunc(result.shares, func(a, b float64) int {
		if a > b {
			return -1
		}
		return 1
	})
	return result
}

// requests returns the number of clients' requests to each node.
func (e *environment) requests() []float64 {
	e.Helper()
	var all []float64
	for _, s := range e.cluster.Nodes {
		samples, err := s.Metrics(e.ctx)
		e.must(err, "read the metrics of %s", s.Name)
		all = append(all, fleet.Sum(samples, "tidemark_rpc_requests_total"))
	}
	return all
}

// loads returns the load of the heaviest partition that has more than one key, and describes the
// loads of all partitions.
func (e *environment) loads(client *kv.Client, keyspace string) (heaviest float64, text string) {
	e.Helper()
	all, err := admin.New(client).Partitions(e.ctx, keyspace)
	e.must(err, "list the partitions")
	slices.SortFunc(all, func(a, b admin.PartitionInfo) int {
		if a.Minute.Load > b.Minute.Load {
			return -1
		}
		return 1
	})
	var parts []string
	for i, p := range all {
		note := ""
		if p.LiveKeys > 1 {
			heaviest = max(heaviest, p.Minute.Load)
		} else {
			note = " (one key)"
		}
		if i < 16 {
			parts = append(parts, fmt.Sprintf("%.2f on node %d%s", p.Minute.Load, p.Leader, note))
		}
	}
	return heaviest, fmt.Sprintf("%d partitions, their loads: %s",
		len(all), strings.Join(parts, ", "))
}
