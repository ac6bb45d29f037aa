package table

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

var tableSizes = []int{10_000, 1_000_000}

// benchmarkPartitions makes partitions of keyspaces with 1,000 hash partitions each.
func benchmarkPartitions(n int) *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Revision: 1, Complete: true}
	for i := range n {
		ks := keys.KeyspaceID(1 + i/1000)
		if i%1000 == 0 {
			u.Keyspaces = append(u.Keyspaces, &clusterpb.Keyspace{Id: uint32(ks)})
		}
		prefix := keys.HashPrefix(ks, uint16(i%1000))
		u.Partitions = append(u.Partitions, &clusterpb.Partition{Id: uint64(100 + i),
			Keyspace: uint32(ks), Generation: 1, Membership: 1, PrefixLength: keys.HashPrefixLength,
			Hash: uint32(i % 1000), Start: prefix, End: keys.PrefixEnd(prefix),
			Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1,
				Role: clusterpb.ReplicaRole_VOTER}}})
	}
	return u
}

func BenchmarkTableLookUp(b *testing.B) {
	for _, n := range tableSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t := New().With(benchmarkPartitions(n))
			i := 0
			for b.Loop() {
				i = (i + 7919) % n
				if t.Partition(keys.PartitionID(100+i)) == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}

// One partition changes, and a follower of the table is told.
func BenchmarkTableUpdate(b *testing.B) {
	for _, n := range tableSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			u := benchmarkPartitions(n)
			t := New().With(u)
			p := proto.Clone(u.Partitions[n/2]).(*clusterpb.Partition)
			b.ReportAllocs()
			for b.Loop() {
				p.Membership++
				next := t.With(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{p}})
				if d := Diff(t, next); len(d.Partitions) != 1 {
					b.Fatal(d)
				}
			}
		})
	}
}

// What a table needs for each partition beside the descriptor.
func BenchmarkTableMemory(b *testing.B) {
	n := tableSizes[1]
	u := benchmarkPartitions(n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t := New().With(u)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "B/partition")
	runtime.KeepAlive(t)
	runtime.KeepAlive(u)
}
