package faults

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

var maxStopPause = flag.Duration("faults.stop-pause", 100*time.Millisecond,
	"the longest pause of a partition that TestStopInTurn accepts: the median over the stops")

// threeServers is three servers, each of them a core member and a node.
func threeServers() fleet.Layout {
	return fleet.Layout{Nodes: 3, Configure: func(_ int, s *fleet.Server) { s.Roles = "core,node" }}
}

// shareCore makes all servers of a cluster members of its core.
func shareCore(c *fleet.Cluster) {
	core := strings.Join(c.Endpoints(), ",")
	for _, s := range c.Nodes {
		s.Core = core
	}
}

// TestStopInTurn stops each of three servers with SIGTERM in turn and restarts it, under load. No
// client sees an error, and no partition pauses for longer than a hand-over takes.
func TestStopInTurn(t *testing.T) {
	e := newEnvironment(t, 6*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start(keyspace, hash, 3)
	load := steadyLoad(e.open(keyspace))
	load.Start(e.ctx)
	defer load.Stop()
	writes, reads := NewProbe(e.open(keyspace), hash, probeEvery), NewProbe(e.open(keyspace), hash,
		probeEvery)
	reads.Read = true
	for _, probe := range []*Probe{writes, reads} {
		e.must(probe.Start(e.ctx), "first operations")
		defer probe.Stop()
	}
	var gaps []time.Duration
	for round := range 2 {
		for _, s := range e.cluster.Nodes {
			leading := e.ledBy(s)
			// Measure the pauses that the machine itself causes.
			writes.Reset()
			reads.Reset()
			e.pass(3 * time.Second)
			noise, _ := longest(append(writes.Pauses(), reads.Pauses()...), nil)
			writes.Reset()
			reads.Reset()
			begun := time.Now()
			e.must(s.Stop(20*time.Second), "stop %s", s.Name)
			took := time.Since(begun)
			e.pass(3 * time.Second)
			written, _ := longest(writes.Pauses(), nil)
			read, _ := longest(reads.Pauses(), nil)
			still := max(writes.Still(), reads.Still())
			e.result("round %d: stopped %s, which led %d of %d partitions, in %v: longest pause "+
				"%v of writes, %v of reads; "+
				"without a stop %v; this test itself stood still for %v", round+1, s.Name,
				len(leading), hash, took.Round(time.Millisecond),
				written.Round(time.Millisecond), read.Round(time.Millisecond),
				noise.Round(time.Millisecond), still.Round(time.Millisecond))
			if max(noise, still) < *maxStopPause/2 {
				gaps = append(gaps, max(written, read))
			}
			e.restart(s)
			e.wait(20*time.Second, "every partition answers",
				func(context.Context) error {
					return writes.AllAnswered(time.Now().Add(-time.Second))
				})
			// Leaderships return to their preferred servers, so that the next stop moves some
			// again.
			e.wait(40*time.Second, "the servers lead alike",
				func(ctx context.Context) error { return e.leadAlike(ctx) })
		}
	}
	writes.Stop()
	reads.Stop()
	if len(gaps) == 0 {
		e.Error("no stop could be judged: the machine is too busy")
	} else {
		slices.Sort(gaps)
		median := gaps[len(gaps)/2]
		e.result("pauses of %d stops: median %v, longest %v", len(gaps),
			median.Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
		if median > *maxStopPause {
			e.Errorf("a stop pauses partitions for %v, allowed are %v",
				median.Round(time.Millisecond), *maxStopPause)
		}
	}
	for _, probe := range []*Probe{writes, reads} {
		if n, err := probe.Failures(); n > 0 {
			e.Errorf("%d operations of a probe failed, the last with: %v", n, err)
		}
	}
	load.Stop()
	if n := load.failed.Load(); n > 0 {
		e.Errorf("%d operations failed: %s", n, load.Summary())
	}
	e.check(load)
}

// leadAlike returns nil if every server leads some partitions.
func (e *environment) leadAlike(ctx context.Context) error {
	counts, err := e.admin.LeaderCounts(ctx, keyspace)
	if err != nil {
		return err
	}
	for _, s := range e.cluster.Nodes {
		if counts[s] < hash/len(e.cluster.Nodes) {
			return fmt.Errorf("%s leads %d of %d partitions", s.Name, counts[s], hash)
		}
	}
	return nil
}
