package txn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Locks and transaction records, and their keys, are written and read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "lock", func(*release.Active) []golden.Record {
		records := []golden.Record{{Name: "key", Data: LockKey([]byte("internal"))}}
		for i, l := range sampleLocks() {
			records = append(records, golden.Record{Name: fmt.Sprint("lock-", i), Data: l.Append(nil)})
		}
		return records
	}, func(r golden.Record) (err error) {
		if strings.HasPrefix(r.Name, "lock-") {
			_, err = DecodeLock(r.Data)
		}
		return err
	})
	golden.Check(t, "record", func(*release.Active) []golden.Record {
		records := []golden.Record{{Name: "key", Data: RecordKey([]byte("internal"), testID(1))}}
		for i, x := range sampleRecords() {
			if data := x.Append(nil); len(data) < 1<<10 {
				records = append(records, golden.Record{Name: fmt.Sprint("record-", i), Data: data})
			}
		}
		return records
	}, func(r golden.Record) (err error) {
		if strings.HasPrefix(r.Name, "record-") {
			_, err = DecodeRecord(r.Data)
		}
		return err
	})
}
