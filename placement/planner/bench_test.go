package planner_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	benchNodes      = 1000
	benchZones      = 5
	benchPartitions = 1_000_000
)

// large is a balanced cluster: partition i on three nodes of three zones.
func large(b *testing.B, partitions int) (*rooms, []planner.Partition) {
	b.Helper()
	r, err := newRooms(planner.Settings{})
	if err != nil {
		b.Fatal(err)
	}
	s := r.state
	if err := s.SetKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}); err != nil {
		b.Fatal(err)
	}
	list := make([]planner.Partition, partitions)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range list {
		zone, at := i%benchZones, i/benchZones%(benchNodes/benchZones)
		p := planner.Partition{ID: keys.PartitionID(i + 100), Keyspace: 1, Epoch: planner.Epoch{1, 1},
			Bytes: 128<<20 + random.Int64N(64<<20), LeaderLoad: planner.Cores(random.IntN(3000)),
			Measured: time.Hour}
		p.FollowerLoad = p.LeaderLoad / 3
		for r := range 3 {
			n := keys.NodeID((zone+r)%benchZones*benchNodes/benchZones + at + 1)
			p.Replicas = append(p.Replicas, planner.Replica{Node: n})
		}
		p.Leader, p.Wanted = p.Replicas[0].Node, p.Replicas[0].Node
		list[i] = p
	}
	// The replicas' slices are not what is measured.
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range benchNodes {
		if err := s.SetNode(benchNode(i)); err != nil {
			b.Fatal(err)
		}
	}
	for _, p := range list {
		if err := s.SetPartition(p); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Logf("%d partitions: %d bytes each", partitions,
		(after.HeapAlloc-before.HeapAlloc)/uint64(partitions))
	return r, list
}

var benchStart = time.Unix(1_700_000_000, 0)

func benchNode(i int) planner.Node {
	return planner.Node{ID: keys.NodeID(i + 1), Region: "eu",
		Zone: fmt.Sprint("z", i/(benchNodes/benchZones)), Alive: true, Since: benchStart,
		DiskCapacity: 4 << 40, Processors: 16 * planner.Core}
}

// A full pass: every partition is looked at.
func BenchmarkFullPass(b *testing.B) {
	r, _ := large(b, benchPartitions)
	now := benchStart.Add(time.Hour)
	proposal := r.proposer.Step(now, nil)
	b.Logf("%d operators, %d wait, %d blocked", len(proposal.Operators), proposal.Waiting,
		proposal.Blocked)
	b.ResetTimer()
	for range b.N {
		r.state.TouchAll()
		now = now.Add(time.Minute)
		r.proposer.Step(now, nil)
	}
}

// Loading everything and the first step, as a new leader of the core does.
func BenchmarkLoad(b *testing.B) {
	for range b.N {
		r, _ := large(b, benchPartitions)
		r.proposer.Step(benchStart.Add(time.Hour), nil)
	}
}

// An ordinary step: reports of a thousand partitions, nothing to do.
func BenchmarkStep(b *testing.B) {
	r, list := large(b, benchPartitions)
	now := benchStart.Add(time.Hour)
	r.proposer.Step(now, nil)
	b.ResetTimer()
	for i := range b.N {
		for j := range 1000 {
			p := &list[(i*1000+j)*7919%len(list)]
			p.Bytes += 1 << 16
			if err := r.state.SetPartition(*p); err != nil {
				b.Fatal(err)
			}
		}
		now = now.Add(time.Second)
		r.proposer.Step(now, nil)
	}
}

// Steps while a node is repaired: its 3,000 replicas wait, as many as may be are in flight.
func BenchmarkStepRepair(b *testing.B) {
	r, _ := large(b, benchPartitions)
	n := benchNode(7)
	n.Alive = false
	if err := r.state.SetNode(n); err != nil {
		b.Fatal(err)
	}
	benchBusy(b, r)
}

// Steps after a zone came back empty: everything is out of balance.
func BenchmarkStepUneven(b *testing.B) {
	r, _ := large(b, benchPartitions)
	for i := range 100 {
		n := benchNode(benchNodes + i)
		n.Zone = fmt.Sprint("z", i%benchZones)
		if err := r.state.SetNode(n); err != nil {
			b.Fatal(err)
		}
	}
	benchBusy(b, r)
}

// Steps after a zone went silent for good: a fifth of all replicas have to be replaced.
func BenchmarkStepZoneLost(b *testing.B) {
	r, _ := large(b, benchPartitions)
	for i := range benchNodes / benchZones {
		n := benchNode(i)
		n.Alive = false
		if err := r.state.SetNode(n); err != nil {
			b.Fatal(err)
		}
	}
	benchBusy(b, r)
}

func benchBusy(b *testing.B, r *rooms) {
	now := benchStart.Add(time.Hour)
	began := time.Now()
	proposal := r.proposer.Step(now, nil)
	b.Logf("first step %s: %d operators, %d wait, %d blocked", time.Since(began),
		len(proposal.Operators), proposal.Waiting, proposal.Blocked)
	var inFlight []planner.InFlight
	for _, op := range proposal.Operators {
		inFlight = append(inFlight, op.InFlight())
	}
	total := 0
	b.ResetTimer()
	for range b.N {
		now = now.Add(time.Second)
		proposal := r.proposer.Step(now, inFlight)
		total += len(proposal.Operators)
		for _, op := range proposal.Operators {
			inFlight = append(inFlight, op.InFlight())
		}
		if len(inFlight) > 100 {
			inFlight = inFlight[50:]
		}
	}
	b.ReportMetric(float64(total)/float64(b.N), "operators/op")
}
