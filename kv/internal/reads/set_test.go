package reads

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

func testKeyspace(id keys.KeyspaceID, hash uint32) *route.Keyspace {
	info := &clusterpb.Keyspace{Id: uint32(id), Partitioning: clusterpb.Partitioning_RANGE,
		HashPartitions: hash}
	if hash > 0 {
		info.Partitioning = clusterpb.Partitioning_HASH
	}
	return &route.Keyspace{ID: id, Info: info}
}

func covers(r committer.Reads, ks *route.Keyspace, key []byte) bool {
	for _, k := range append(r.Keys, r.Locked...) {
		if k.Keyspace == ks.ID && string(k.Key) == string(key) {
			return true
		}
	}
	for _, s := range r.Spans {
		in := s.Hash == committer.AllPartitions ||
			(ks.Hashed() && s.Hash == int(keys.HashPartition(key, ks.Info.HashPartitions)))
		if s.Keyspace == ks.ID && in && s.Contains(key) {
			return true
		}
	}
	return false
}

// unwritten are keys without a value.
func unwritten(all ...[]byte) func(i int) ([]byte, hlc.Timestamp) {
	return func(i int) ([]byte, hlc.Timestamp) { return all[i], hlc.Timestamp{} }
}

// Whatever is done to make it smaller, all that was read is covered.
func TestReadSetCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		spaces := []*route.Keyspace{testKeyspace(1, 0), testKeyspace(2, 7)}
		type read struct {
			ks  *route.Keyspace
			key string
		}
		var all []read
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			ks := rapid.SampledFrom(spaces).Draw(t, "keyspace")
			key := fmt.Sprintf("%03d", rapid.IntRange(0, 200).Draw(t, "key"))
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 5:
				s.Pairs(ks, 2, unwritten([]byte(key), []byte(key+"0")))
				all = append(all, read{ks, key}, read{ks, key + "0"})
			case 0:
				s.Span(ks, keys.Span{Start: []byte(key), End: []byte(key + "5")})
				all = append(all, read{ks, key}, read{ks, key + "4"})
			case 1:
				s.Lock(ks, []byte(key))
				all = append(all, read{ks, key})
			case 2:
				s.condense()
			default:
				s.Key(ks, []byte(key), hlc.Timestamp{})
				all = append(all, read{ks, key})
			}
		}
		got := s.All()
		for _, r := range all {
			if !covers(got, r.ks, []byte(r.key)) {
				t.Fatalf("%s of keyspace %s is not covered: %+v", r.key, r.ks.ID, got)
			}
		}
	})
}

func TestReadSetIsBounded(t *testing.T) {
	var s Set
	hash, ranges := testKeyspace(1, 16), testKeyspace(2, 0)
	for i := range 200_000 {
		key := fmt.Appendf(nil, "key-%06d", (i*7919)%200_000)
		if i%2 == 0 {
			s.Key(hash, key, hlc.Timestamp{})
		} else {
			s.Pairs(hash, 1, unwritten(key))
		}
		s.Pairs(ranges, 1, unwritten(key))
		if s.entries > maxReadEntries || len(s.recent) > maxRecent {
			t.Fatalf("%d entries and %d recent ones after %d keys", s.entries, len(s.recent), i)
		}
	}
	s.condense()
	if s.entries > 2*condensedEntries {
		t.Errorf("%d entries", s.entries)
	}
	if got := s.All(); !covers(got, hash, []byte("key-123456")) ||
		covers(got, ranges, []byte("other")) {
		t.Error("it covers too little, or too much")
	}
}
