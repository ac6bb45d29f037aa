package block

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Blocks are written and read as in every release.
func TestGolden(t *testing.T) {
	of := func(records ...Record) []byte {
		var w Writer
		for _, r := range records {
			if err := w.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		return w.Finish()
	}
	golden.Check(t, "block", func(*release.Active) []golden.Record {
		repetitive := make([]Record, 50)
		for i := range repetitive {
			repetitive[i] = Record{Key: []byte{'k', byte(i)}, Value: make([]byte, 40)}
		}
		return []golden.Record{
			{Name: "plain", Data: of(Record{Key: []byte("key-1"), Value: []byte("one")},
				Record{Key: []byte("key-2"), Value: nil})},
			{Name: "lifetimes", Data: of(Record{Key: []byte("a"), Value: []byte("1")},
				Record{Key: []byte("b"), Value: []byte("2"), Lifetime: keys.Forever},
				Record{Key: []byte("c"), Value: []byte("3"), Lifetime: keys.Until(1 << 60)})},
			{Name: "compressed", Data: of(repetitive...)},
		}
	}, func(r golden.Record) error {
		_, err := readAll(r.Data)
		return err
	})
}
