package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// benchmarkKnown is a Known with a table of n partitions, and nothing else. hash: of hash
// keyspaces with 1,000 partitions each; otherwise of one range keyspace.
func benchmarkKnown(n int, hash bool) (*Known, *clusterpb.TableUpdate) {
	u := &clusterpb.TableUpdate{Revision: 1, Complete: true}
	if !hash {
		u.Keyspaces = append(u.Keyspaces, &clusterpb.Keyspace{Id: 1, Name: "k",
			Partitioning: clusterpb.Partitioning_RANGE})
	}
	prefix := keys.KeyspacePrefix(1)
	start := prefix
	for i := range n {
		p := &clusterpb.Partition{Id: uint64(100 + i), Keyspace: 1, Generation: 1, Membership: 1,
			Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1, Role: clusterpb.ReplicaRole_VOTER}}}
		if hash {
			p.Keyspace, p.Hash, p.PrefixLength = uint32(1+i/1000), uint32(i%1000), keys.HashPrefixLength
			p.Start = keys.HashPrefix(keys.KeyspaceID(p.Keyspace), uint16(p.Hash))
			p.End = keys.PrefixEnd(p.Start)
			if p.Hash == 0 {
				u.Keyspaces = append(u.Keyspaces, &clusterpb.Keyspace{Id: p.Keyspace,
					Name: fmt.Sprint("k", p.Keyspace), Partitioning: clusterpb.Partitioning_HASH,
					HashPartitions: 1000})
			}
		} else {
			p.PrefixLength, p.Start, p.End = keys.KeyspacePrefixLength, start, keys.PrefixEnd(prefix)
			if i < n-1 {
				p.End = append(bytes.Clone(prefix), benchmarkKey(uint32(i+1))...)
			}
			start = p.End
		}
		u.Partitions = append(u.Partitions, p)
	}
	s := bareKnown()
	s.Merge(u)
	return s, u
}

func benchmarkKey(i uint32) []byte { return binary.BigEndian.AppendUint32(nil, i) }

var tableSizes = []int{10_000, 1_000_000}

func BenchmarkTableLookUp(b *testing.B) {
	for _, n := range tableSizes {
		b.Run(fmt.Sprintf("range/%d", n), func(b *testing.B) {
			s, _ := benchmarkKnown(n, false)
			i, key := 0, make([]byte, 5)
			for b.Loop() {
				i = (i + 7919) % n
				binary.BigEndian.PutUint32(key, uint32(i))
				if s.Table().KeyspaceByID(1).ByKey(key) == nil {
					b.Fatal("not found")
				}
			}
		})
		b.Run(fmt.Sprintf("hash/%d", n), func(b *testing.B) {
			s, _ := benchmarkKnown(n, true)
			i := 0
			for b.Loop() {
				i = (i + 7919) % n
				if s.Table().KeyspaceByID(keys.KeyspaceID(1+i/1000)).ByHash(uint32(i%1000), nil) == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}

// One partition changes.
func BenchmarkTableUpdate(b *testing.B) {
	for _, n := range tableSizes {
		for _, hash := range []bool{false, true} {
			b.Run(fmt.Sprintf("hash=%t/%d", hash, n), func(b *testing.B) {
				s, u := benchmarkKnown(n, hash)
				membership := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					p := proto.Clone(u.Partitions[n/2]).(*clusterpb.Partition)
					membership++
					p.Membership = membership
					s.Merge(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{p}})
				}
			})
		}
	}
}

// What a table needs for each partition beside the descriptor.
func BenchmarkTableMemory(b *testing.B) {
	const n = 1_000_000
	for _, hash := range []bool{false, true} {
		b.Run(fmt.Sprintf("hash=%t", hash), func(b *testing.B) {
			s, u := benchmarkKnown(n, hash)
			for b.Loop() {
			}
			heap := func() float64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc)
			}
			with := heap()
			runtime.KeepAlive(s)
			s = nil
			b.ReportMetric((with-heap())/n, "B/partition")
			runtime.KeepAlive(u)
		})
	}
}
