package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// goroutinesPerServer bounds the goroutines of a server. goroutinesPerLink bounds the goroutines of
// a connection between a client and a server, on both sides.
const goroutinesPerServer, goroutinesPerLink = 400, 12

// check makes the checks at the end of a run, when no client writes any more.
func (w *World) check(t testing.TB, workloads []driver.Workload, counters *coverage) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	w.checkRetired(ctx)
	w.waitReady(ctx)
	client := w.Client(w.Cluster.Client(t), nil, "")
	for _, load := range workloads {
		if err := load.Check(ctx, w.Run, client.For(load.Name())); err != nil {
			w.Violation("%s: %v", load.Name(), err)
		}
	}
	for i := range w.Cluster.Servers() {
		w.checkHealthy(i)
	}
	w.checkMoves(ctx)
	w.checkMembers(ctx)
	w.checkAlive(ctx)
	w.checkPlaces(ctx)
	w.checkReplicas(ctx)
	w.checkStates(ctx)
	w.checkTable(ctx)
	counters.checkGauges(w)
	counters.checkLocks(w)
	counters.checkRest(w)
	links := w.Cluster.Servers()
	for _, load := range workloads {
		links += load.Clients() * w.Cluster.Servers()
	}
	if n, most := runtime.NumGoroutine(),
		goroutinesPerServer*w.Cluster.Servers()+goroutinesPerLink*links; n > most {
		w.Violation("%d goroutines; a cluster like this one has at most %d", n, most)
	}
}

// waitReady waits until all servers are ready. It skips a server whose only role is the core and
// that is no member: a server that lost its disk, or was removed, says so, and stays out.
func (w *World) waitReady(ctx context.Context) {
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		if _, why := p.Ready(); w.mayBeOutside(i) && (strings.Contains(why, "offers itself") ||
			strings.Contains(why, "removed from the core")) {
			continue
		}
		if err := p.WaitReady(ctx); err != nil {
			w.Violation("the cluster is whole again, and server %d does not become ready: %v", i,
				err)
		}
	}
}

// checkHealthy reports a running server that has failed, or has a failed replica, without a fault
// that excuses it.
func (w *World) checkHealthy(server int) {
	p := w.Cluster.Process(server)
	if p == nil {
		return
	}
	excused := func(err error) bool {
		return w.isExcused(server) && errors.Is(err, kvtest.ErrDisk) || isRetired(err)
	}
	if err := p.Err(); err != nil && !excused(err) {
		w.Violation("server %d failed: %v", server, err)
	}
	if err := p.CoordinationErr(); err != nil && !excused(err) {
		w.Violation("the part of server %d of the coordination store failed: %v", server, err)
	}
	for _, r := range p.Replicas() {
		if r.Failed != nil && !excused(r.Failed) {
			w.Violation("replica %d of partition %d on server %d failed: %v", r.Replica,
				r.Partition, server, r.Failed)
		}
	}
}

// checkReplicas waits until all replicas of each partition have applied the same index, and
// compares their checksums.
func (w *World) checkReplicas(ctx context.Context) {
	problems := []string{"not looked at yet"}
	for ctx.Err() == nil {
		if problems = w.compare(); len(problems) == 0 {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	w.Violation("replicas are not equal %v after the cluster was healed:\n%s", recovery,
		strings.Join(problems, "\n"))
}

// copied is the state of a replica of a partition.
type copied struct {
	server, peers int
	index, sum    uint64
	leads         bool
}

// compare lists partitions whose replicas differ in applied index or checksum.
func (w *World) compare() (problems []string) {
	wiped := 0
	partitions := make(map[uint64][]copied)
	for i := range w.Cluster.Servers() {
		if w.isWiped(i) {
			wiped++
		}
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		for _, r := range p.Replicas() {
			index, sum, err := p.Checksum(r.Partition)
			if err != nil {
				if !errors.Is(err, embedded.ErrNoReplica) {
					problems = append(problems, fmt.Sprintf("partition %d on server %d: %v",
						r.Partition, i, err))
				}
				continue
			}
			partitions[r.Partition] = append(partitions[r.Partition], copied{i, len(r.Peers), index,
				sum, r.Leads})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		copies := partitions[id]
		equal := len(copies) >= copies[0].peers-wiped
		for _, c := range copies[1:] {
			equal = equal && c.index == copies[0].index && c.sum == copies[0].sum
			if c.index == copies[0].index && c.sum != copies[0].sum {
				w.Violation("partition %d: at index %d server %d has checksum %x and server %d "+
					"has %x",
					id, c.index, copies[0].server, copies[0].sum, c.server, c.sum)
			}
		}
		if !equal {
			problems = append(problems, fmt.Sprintf("partition %d of %d replicas: %+v", id,
				copies[0].peers, copies))
		}
	}
	return problems
}
