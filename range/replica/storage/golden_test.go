package storage

import (
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Applied records are written and read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "applied", func(*release.Active) []golden.Record {
		ts := hlc.Timestamp{Wall: 1 << 60, Logical: 1}
		plain := Record{Index: 500, Term: 2, Highest: ts,
			Stats: Stats{LiveKeys: 1, Versions: 2, Bytes: 300}}
		expiring := plain
		expiring.Stats.Expiring = 2
		return []golden.Record{
			{Name: "empty", Data: (&Record{}).Append(nil)},
			{Name: "plain", Data: plain.Append(nil)},
			{Name: "expiring", Data: expiring.Append(nil)},
		}
	}, func(r golden.Record) error {
		_, err := DecodeApplied(r.Data)
		return err
	})
}
