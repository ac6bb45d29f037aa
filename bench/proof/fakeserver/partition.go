package fakeserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Data has the versions and locks of one keyspace, by user key. Partitions are views of it, so a
// split moves no data.
type Data struct {
	Versions map[string][]Version // oldest first
	Locks    map[string]*Lock
}

// NewData makes empty Data.
func NewData() *Data {
	return &Data{Versions: make(map[string][]Version), Locks: make(map[string]*Lock)}
}

// Version is a version of a key.
type Version struct {
	At        hlc.Timestamp
	Value     string
	Tombstone bool
	// Transaction is the transaction that wrote the version. By is the write, if it belonged to no
	// transaction.
	Transaction string
	By          WriteID
}

// Lock is a transaction's lock on a key, with the value that the transaction is going to write.
type Lock struct {
	Transaction *kvpb.Transaction
	// Prepared: the transaction commits at or above this timestamp.
	Prepared hlc.Timestamp
	Kind     kvpb.Mutation_Kind
	Value    string
	acquired time.Time
	by       WriteID
}

// Partition is a part of a keyspace, and its leader.
type Partition struct {
	Desc *clusterpb.Partition
	Data *Data
	// HashPartitions is the number of hash partitions of the keyspace; 0 in a range keyspace.
	HashPartitions uint32
	Leader, Term   uint64
	// Low is above every timestamp that earlier leaders can have served.
	Low hlc.Timestamp
	// Highest is the timestamp of the newest version, and Read of the newest read.
	Highest, Read hlc.Timestamp
}

// Contains says whether a user key belongs to the partition.
func (p *Partition) Contains(key string) bool {
	if p.HashPartitions > 0 && keys.HashPartition([]byte(key), p.HashPartitions) != p.Desc.Hash {
		return false
	}
	return keys.PartitionContains(p.Desc, []byte(key))
}

// Next returns the node of the replica after the leader's replica.
func (p *Partition) Next() uint64 {
	for i, r := range p.Desc.Replicas {
		if r.Node == p.Leader {
			return p.Desc.Replicas[(i+1)%len(p.Desc.Replicas)].Node
		}
	}
	return p.Desc.Replicas[0].Node
}

// Write adds a version of a key.
func (p *Partition) Write(key string, v Version) {
	p.Data.Add(key, v)
	p.Highest = hlc.Max(p.Highest, v.At)
}

// Add adds a version of a key, in order. It does not add a version twice.
func (d *Data) Add(key string, v Version) {
	all := d.Versions[key]
	i, found := slices.BinarySearchFunc(all, v.At, func(a Version, at hlc.Timestamp) int {
		return a.At.Compare(at)
	})
	if found && all[i].Transaction == v.Transaction && all[i].By == v.By &&
		all[i].Value == v.Value {
		return
	}
	d.Versions[key] = slices.Insert(all, i, v)
}

// Newest returns the newest version of a key, which may be a tombstone; nil if there is none.
func (d *Data) Newest(key string) *Version {
	all := d.Versions[key]
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}

// Live returns the version of a key at a timestamp; nil if there is none, or a tombstone.
func (d *Data) Live(key string, at hlc.Timestamp) *Version {
	all := d.Versions[key]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].At.LessEq(at) {
			if all[i].Tombstone {
				return nil
			}
			return &all[i]
		}
	}
	return nil
}

// own returns the version that an earlier attempt of a request wrote; nil if there is none.
func (s *Store) own(p *Partition, key []byte, by WriteID) *Version {
	if s.Mistakes.DoubledRetries {
		return nil
	}
	all := p.Data.Versions[string(key)]
	for i := range all {
		if all[i].By == by {
			return &all[i]
		}
	}
	return nil
}

// keysIn returns the keys of a span that have a value, ascending.
func (p *Partition) keysIn(start, end []byte, at hlc.Timestamp) (found []string) {
	span := keys.Span{Start: start, End: end}
	for key := range p.Data.Versions {
		if span.Contains([]byte(key)) && p.Contains(key) && p.Data.Live(key, at) != nil {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// covers says whether a read set contains a key of the partition.
func (p *Partition) covers(reads *kvpb.ReadSet, key string) bool {
	return p.Contains(key) &&
		(slices.ContainsFunc(reads.GetKeys(),
			func(k []byte) bool { return bytes.Equal(k, []byte(key)) }) ||
			slices.ContainsFunc(reads.GetSpans(), func(s *kvpb.KeySpan) bool {
				return keys.Span{Start: s.Start, End: s.End}.Contains([]byte(key))
			}))
}
