package proposal

import (
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Entries of a partition's log are written and read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "entry", func(*release.Active) []golden.Record {
		batch := []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 'k', 1, 'v'}
		ts := hlc.Timestamp{Wall: 1_700_000_000_000_000_000, Logical: 7}
		var records []golden.Record
		for _, e := range []struct {
			name  string
			entry Entry
		}{
			{"write", Entry{Kind: KindWrite, Proposer: 3, Sequence: 300, Base: 299, Highest: ts,
				Closed: hlc.Timestamp{Wall: 5}, Delta: Delta{LiveKeys: 1, Versions: 2, Bytes: 130},
				Batch: batch}},
			{"expiring", Entry{Kind: KindWrite, Proposer: 3, Sequence: 1, Highest: ts,
				Delta: Delta{LiveKeys: 1, Versions: 1, Bytes: 9, Expiring: 1}, Batch: batch}},
			{"hand-over", Entry{Kind: KindWrite, Proposer: 3, Sequence: 2, Base: 1, Highest: ts,
				Closed: ts, HandsOver: true}},
			{"threshold", Entry{Kind: KindThreshold, Proposer: 1, Sequence: 2, Base: 1, Threshold: ts}},
			{"remove", Entry{Kind: KindRemove, Proposer: 2, Sequence: 5,
				Delta: Delta{LiveKeys: -1, Versions: -4, Bytes: -1 << 40, Expiring: -3}, Batch: batch}},
			{"descriptor", Entry{Kind: KindDescriptor, Proposer: 2, Sequence: 6, Base: 5, Batch: batch}},
			{"transaction", Entry{Kind: KindTransaction, Proposer: 2, Sequence: 7, Base: 6, Highest: ts,
				Batch: batch}},
			{"split", Entry{Kind: KindSplit, Proposer: 2, Sequence: 8, Base: 7, Closed: ts, Batch: batch}},
			{"freeze", Entry{Kind: KindFreeze, Proposer: 2, Sequence: 9, Base: 8, Closed: ts,
				Batch: batch}},
			{"merge", Entry{Kind: KindMerge, Proposer: 2, Sequence: 10, Base: 9, Batch: batch}},
		} {
			records = append(records, golden.Record{Name: e.name, Data: e.entry.Encode()})
		}
		return records
	}, func(r golden.Record) error {
		_, err := Decode(r.Data)
		return err
	})
	golden.Check(t, "load", func(*release.Active) []golden.Record {
		plain := Load{Timestamp: hlc.Timestamp{Wall: 1 << 60, Logical: 7},
			Request: mvcc.RequestID{Client: 1 << 63, Sequence: 300}, Block: []byte("block")}
		all := plain
		all.CommitWait, all.Expires = true, 1<<61
		return []golden.Record{{Name: "plain", Data: plain.Encode()}, {Name: "all", Data: all.Encode()}}
	}, func(r golden.Record) error {
		_, err := DecodeLoad(r.Data)
		return err
	})
}
