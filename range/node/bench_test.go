package node

import (
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// single is one node on the disk, whose peers are not there.
type single struct {
	log   *engine.Log
	state *engine.State
	*Node
}

func openSingle(b *testing.B, dir string, c *core) single {
	b.Helper()
	var s single
	var err error
	if s.log, err = engine.OpenLog(engine.Options{FS: vfs.Default, Dir: dir + "/log"}); err != nil {
		b.Fatal(err)
	}
	if s.state, err = engine.OpenState(engine.Options{FS: vfs.Default,
		Dir: dir + "/state"}); err != nil {
		b.Fatal(err)
	}
	if s.Node, err = New(Config{ID: 1, Cluster: testCluster, Log: s.log, State: s.state,
		Clock: hlc.NewClock(nil, nil), Metadata: c, Logger: testLogger()}); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s single) close() {
	s.Close()
	s.state.Close()
	s.log.Close()
}

func manyPartitions(count, replicas int) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 2, Name: "ks",
		HashPartitions: uint32(count), ReplicationFactor: uint32(replicas)}}}
	for i := range count {
		prefix := keys.HashPrefix(2, uint16(i))
		p := &clusterpb.Partition{Id: uint64(100 + i), Keyspace: 2, Hash: uint32(i), Start: prefix,
			End: keys.PrefixEnd(prefix), Generation: 1, Membership: group.FoundingMembership,
			PrefixLength: 6}
		for r := range replicas {
			p.Replicas = append(p.Replicas,
				&clusterpb.Replica{Node: uint64(1 + r), Replica: uint64(1 + r)})
		}
		u.Partitions = append(u.Partitions, p)
	}
	return u
}

// BenchmarkOpen measures how long a node takes to create, and to open again, ten thousand replicas,
// and what they hold in memory.
func BenchmarkOpen(b *testing.B) {
	const count = 10_000
	for b.Loop() {
		dir := b.TempDir()
		c := newCore()
		net := newNetwork()
		s := openSingle(b, dir, c)
		if err := s.Start(transport{net, 1}); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		c.update(manyPartitions(count, 3))
		for len(s.replicas.All()) < count {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(time.Since(began).Seconds(), "create-s")
		s.close()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s = openSingle(b, dir, c)
		began = time.Now()
		if err := s.Start(transport{net, 1}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "open-s")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "heap-B/replica")
		s.close()
		net.close()
	}
}

// BenchmarkHandle measures the way of a batch of gets to its partitions and back, with a replica
// that answers at once.
func BenchmarkHandle(b *testing.B) {
	dir := b.TempDir()
	c, net := newCore(), newNetwork()
	s := openSingle(b, dir, c)
	if err := s.Start(transport{net, 1}); err != nil {
		b.Fatal(err)
	}
	const count, batch = 64, 64
	c.update(manyPartitions(count, 1))
	for s.leaders.Count() < count {
		time.Sleep(time.Millisecond)
	}
	requests := make([]*kvpb.Request, batch)
	for i := range requests {
		requests[i] = &kvpb.Request{Id: uint64(i), Partition: uint64(100 + i%count), Generation: 1,
			Term:    1,
			Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("key")}}}
	}
	b.ReportAllocs()
	for b.Loop() {
		handle(s.Node, 7, requests, func(*kvpb.Response) {})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/request")
	s.close()
	net.close()
}
