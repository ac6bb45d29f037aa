package raftlog

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Keys and records of the log store are written and read as in every release.
func TestGolden(t *testing.T) {
	const index = uint64(300)
	golden.Check(t, "record", func(*release.Active) []golden.Record {
		entry := func(kind raftpb.EntryType, data string) []byte {
			e := &raftpb.Entry{Index: new(index), Term: new(uint64(7)), Type: kind.Enum()}
			if data != "" {
				e.Data = []byte(data)
			}
			return appendEntry(nil, e)
		}
		return []golden.Record{
			{Name: "entry-key", Data: appendEntryKey(nil, 9, index)},
			{Name: "hard-state-key", Data: appendGroupKey(nil, 9, kindHardState)},
			{Name: "truncation-key", Data: appendGroupKey(nil, 9, kindTruncated)},
			{Name: "identity-key", Data: appendGroupKey(nil, 9, kindIdentity)},
			{Name: "entry", Data: entry(raftpb.EntryNormal, "data")},
			{Name: "entry-empty", Data: entry(raftpb.EntryNormal, "")},
			{Name: "entry-change", Data: entry(raftpb.EntryConfChangeV2, "change")},
			{Name: "hard-state", Data: encodeHardState(&raftpb.HardState{Term: new(uint64(7)),
				Vote: new(uint64(3)), Commit: new(index)})},
			{Name: "truncation", Data: encodeTruncation(truncation{index: index, term: 7})},
			{Name: "identity", Data: encodeIdentity(Identity{Group: 9, Replica: 3,
				Voters: []keys.ReplicaID{1, 2, 3}, Descriptor: []byte("descriptor")})},
			{Name: "tombstone", Data: encodeIdentity(Identity{Group: 9, Replica: 3, Removed: true})},
		}
	}, func(r golden.Record) (err error) {
		switch r.Name {
		case "entry", "entry-empty", "entry-change":
			_, err = decodeEntry(r.Data, index)
		case "hard-state":
			_, err = decodeHardState(r.Data)
		case "truncation":
			_, err = decodeTruncation(r.Data)
		case "identity", "tombstone":
			_, err = decodeIdentity(9, r.Data)
		default:
			if _, _, ok := decodeGroupKey(r.Data); !ok {
				err = ErrCorrupt
			}
		}
		return err
	})
}
