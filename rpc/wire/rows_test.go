package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Rows are encoded as the generated code does it, and decode to what they were.
func TestRowsAreProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var encoded []byte
		var want kvpb.Rows
		var rows []Row
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			r := Row{
				Key:   rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "key"),
				Value: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value"),
				Version: hlc.Timestamp{Wall: rapid.Int64Min(0).Draw(t, "wall"),
					Logical: rapid.Uint32().Draw(t, "logical")},
				Expires: max(0, rapid.Int64().Draw(t, "expires")),
			}
			rows = append(rows, r)
			encoded = AppendRow(encoded, r.Key, r.Value, r.Version, r.Expires)
			want.Pairs = append(want.Pairs,
				&kvpb.Pair{Key: r.Key, Value: r.Value, Version: ToTimestamp(r.Version),
					Expires: uint64(r.Expires)})
		}
		generated, err := want.MarshalVT()
		if err != nil || !bytes.Equal(generated, encoded) {
			t.Fatalf("encoded to %x, the generated code gives %x, %v", encoded, generated, err)
		}
		got, err := DecodeRows(encoded)
		if err != nil || len(got) != len(rows) {
			t.Fatalf("%d rows, %v", len(got), err)
		}
		for i, r := range got {
			if !bytes.Equal(r.Key, rows[i].Key) || !bytes.Equal(r.Value, rows[i].Value) ||
				r.Version != rows[i].Version || r.Expires != rows[i].Expires {
				t.Fatalf("row %d is %+v, want %+v", i, r, rows[i])
			}
		}
	})
}

// What does not decode by the generated code is refused, and what does gives the same rows.
func FuzzDecodeRows(f *testing.F) {
	f.Add(AppendRow(AppendRow(nil, []byte("k"), []byte("v"), hlc.Timestamp{Wall: 5, Logical: 300}, 0),
		[]byte("l"), nil, hlc.Timestamp{Wall: 1}, 7))
	f.Add([]byte{tagPair, 2, tagKey, 0})
	f.Add([]byte{tagPair, 200, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var want kvpb.Rows
		unsound := want.UnmarshalVTUnsafe(data) != nil
		rows, err := DecodeRows(data)
		if err != nil {
			return
		}
		if unsound {
			t.Fatalf("%x decodes, and not by the generated code", data)
		}
		if len(rows) != len(want.Pairs) {
			t.Fatalf("%x: %d rows, the generated code finds %d", data, len(rows), len(want.Pairs))
		}
		for i, r := range rows {
			if !bytes.Equal(r.Key, want.Pairs[i].Key) || !bytes.Equal(r.Value, want.Pairs[i].Value) {
				t.Fatalf("%x: row %d is %+v", data, i, r)
			}
		}
	})
}
