package server

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// BenchmarkManyPartitions fills a core of one member, on disk, with keyspaces of 10,000 partitions,
// and measures what an ordinary step costs then. TIDEMARK_PARTITIONS is how many partitions there
// are, default 10,000. It runs once, whatever -benchtime says.
func BenchmarkManyPartitions(b *testing.B) {
	const each = 10_000
	all := each
	if text := os.Getenv("TIDEMARK_PARTITIONS"); text != "" {
		var err error
		if all, err = strconv.Atoi(text); err != nil || all%each != 0 {
			b.Fatalf("TIDEMARK_PARTITIONS is %q; want a multiple of %d", text, each)
		}
	}
	for b.Loop() { // the figures are those of the steps below
	}
	c := newCoreOn(b, func() vfs.FS { return vfs.Default }, b.TempDir(), 1, nil)
	defer c.close()
	c.elect(c.members[0])
	client, s := c.client("client"), c.members[0].server
	var nodes []uint64
	for i := range 4 {
		id, stop := c.register(client, i+1, fmt.Sprint("zone", i))
		defer stop()
		nodes = append(nodes, id)
	}
	empty := heapBytes()
	took := func(unit string, f func()) {
		began := time.Now()
		f()
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000, unit)
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	newest := func() *clusterpb.Keyspace {
		l, err := client.ListKeyspaces(b.Context(), &clusterpb.ListKeyspacesRequest{})
		must(err)
		if len(l.Keyspaces) == 0 {
			return nil
		}
		return l.Keyspaces[len(l.Keyspaces)-1].Keyspace
	}
	for i := range all / each {
		took("ms/create-last", func() {
			_, err := client.CreateKeyspace(b.Context(), hash(fmt.Sprint("k", i), each, 3))
			must(err)
			for newest().GetState() != clusterpb.KeyspaceState_ACTIVE {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	// All partitions are reported, in as many heartbeats as a node would take for that.
	var reports []*clusterpb.PartitionReport
	var some []*clusterpb.Partition
	for kv, err := range s.config.Store.Stale().All([]byte(meta.PartitionPrefix)) {
		must(err)
		p, err := meta.DecodePartition(kv.Key, kv.Value)
		must(err)
		if len(some) < 1000 {
			some = append(some, p)
		}
		reports = append(reports, &clusterpb.PartitionReport{Partition: p.Id, Term: 1,
			Generation: 1, Membership: 1, LiveKeys: 1, SizeBytes: 1})
	}
	beat := func(reports []*clusterpb.PartitionReport, full bool) {
		_, err := client.Heartbeat(b.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
			Node: nodes[0], Server: 1001, Reports: reports, Full: full})
		must(err)
	}
	took("ms/report-all", func() {
		for i := 0; i < len(reports); i += 2000 {
			beat(reports[i:min(i+2000, len(reports))], i == 0)
		}
	})
	b.ReportMetric(float64(heapBytes()-empty)/float64(all), "heap-B/partition")
	took("ms/heartbeat", func() { beat(reports[:50], false) })
	// A step of 1,000 moves: their descriptors are reported, and go into the table.
	var moved []*clusterpb.PartitionReport
	for _, p := range some {
		d := withLearner(p, 99)
		moved = append(moved, &clusterpb.PartitionReport{Partition: d.Id, Term: 1,
			Generation: d.Generation, Membership: d.Membership, Described: d})
	}
	took("ms/follow-1000", func() {
		beat(moved, false)
		must(s.followReports(b.Context()))
	})
	last := keys.PartitionID(reports[len(reports)-1].Partition)
	took("ms/find", func() {
		d, err := s.operators.Find(s.config.Store.Stale(), last)
		must(err)
		if d == nil {
			b.Fatal("not found")
		}
	})
	took("ms/drop-last", func() {
		name := newest().Name
		_, err := client.DropKeyspace(b.Context(), &clusterpb.DropKeyspaceRequest{Name: name})
		must(err)
		for newest().GetName() == name {
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
