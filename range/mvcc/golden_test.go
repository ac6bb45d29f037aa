package mvcc

import (
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Headers of versions, and the keys under which versions and local records lie, are written and
// read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "header", func(*release.Active) []golden.Record {
		id := RequestID{Client: 1 << 63, Sequence: 300}
		var records []golden.Record
		for _, h := range []struct {
			name   string
			header Header
		}{
			{"value", Header{KindValue, id, false, 0}},
			{"tombstone", Header{KindTombstone, id, false, 0}},
			{"commit-wait", Header{KindValue, id, true, 0}},
			{"expiring", Header{KindValue, id, false, 1 << 60}},
		} {
			records = append(records, golden.Record{Name: h.name, Data: h.header.Append(nil)})
		}
		return records
	}, func(r golden.Record) error {
		_, _, err := DecodeHeader(r.Data)
		return err
	})
	golden.Check(t, "key", func(*release.Active) []golden.Record {
		internal := append(keys.HashPrefix(7, 513), "user\x00key"...)
		ts := hlc.Timestamp{Wall: 1 << 60, Logical: 5}
		return []golden.Record{
			{Name: "keyspace-prefix", Data: keys.KeyspacePrefix(7)},
			{Name: "hash-prefix", Data: keys.HashPrefix(7, 513)},
			{Name: "data", Data: keys.DataKey(internal)},
			{Name: "version", Data: keys.AppendTimestamp(keys.DataKey(internal), ts)},
			{Name: "version-without-logical", Data: keys.AppendTimestamp(keys.DataKey(internal),
				hlc.Timestamp{Wall: 9})},
			{Name: "anchor", Data: keys.AnchorKey(internal, "suffix")},
			{Name: "local", Data: keys.LocalKey(9, keys.SuffixApplied)},
			{Name: "hash-number", Data: []byte{byte(keys.HashPartition([]byte("user"), 256))}},
		}
	}, nil)
}
