package archive

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
)

// update writes the files of the present version anew. Files of earlier versions stay as they are.
var update = flag.Bool("update", false, "write the golden files of the present version")

// goldenRecords and goldenHeader are what the golden files of pieces have.
func goldenRecords() []Record {
	return []Record{
		{Key: []byte("order/0001"), Timestamp: at, Value: []byte("first"), Expiry: at.Wall + 1e9},
		{Key: []byte("order/0001"), Timestamp: hlc.Timestamp{Wall: at.Wall - 5}, Kind: Tombstone},
		{Key: []byte("order/0002"), Timestamp: hlc.Timestamp{Wall: at.Wall, Logical: 1}, Value: []byte{}},
		{Key: []byte("order/0010\x00"), Timestamp: hlc.Timestamp{Wall: at.Wall - 9, Logical: 2},
			Value: bytes.Repeat([]byte("value "), 30)},
		{Key: []byte("other"), Timestamp: hlc.Timestamp{Wall: at.Wall - 9}, Kind: Tombstone},
	}
}

func goldenHeader() Header {
	partition := uint32(6)
	return Header{Kind: "incremental", Backup: "2026-01-02", Sequence: 12, KeyspaceID: 4,
		Keyspace: "orders", Partition: &partition, Start: []byte("order/"), End: []byte("p"),
		After: hlc.Timestamp{Wall: at.Wall - 10, Logical: 3}, At: at}
}

// Files that earlier versions have written are read for ever.
func TestGoldenFiles(t *testing.T) {
	secret, err := os.ReadFile("testdata/identity.txt")
	must(t, err)
	identities, err := ParseIdentities(string(secret))
	must(t, err)
	if *update {
		for _, o := range []Options{{}, {Recipients: identities.Recipients()}} {
			suffix := map[bool]string{false: "", true: "_encrypted"}[len(o.Recipients) > 0]
			must(t, os.WriteFile("testdata/piece_v1"+suffix+".tmbk",
				seal(t, goldenHeader(), o, goldenRecords()), 0o600))
			blob, _, err := Seal("manifest", []byte(`{"pieces":3}`), o)
			must(t, err)
			must(t, os.WriteFile("testdata/blob_v1"+suffix+".tmbk", blob, 0o600))
		}
	}
	files, err := filepath.Glob("testdata/*.tmbk")
	must(t, err)
	if len(files) < 4 {
		t.Fatalf("there are %q only", files)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		info, err := Inspect(data)
		must(t, err)
		if !info.Piece {
			content, err := Unseal(data, "manifest", identities)
			if must(t, err); string(content) != `{"pieces":3}` {
				t.Errorf("%s: %q", file, content)
			}
			continue
		}
		h, records, err := readAll(data, identities)
		must(t, err)
		text, err := h.MarshalJSON()
		must(t, err)
		want, err := goldenHeader().MarshalJSON()
		must(t, err)
		if !bytes.Equal(text, want) || !slices.EqualFunc(records, goldenRecords(), sameRecord) {
			t.Errorf("%s: %s\n%v", file, text, records)
		}
	}
}
