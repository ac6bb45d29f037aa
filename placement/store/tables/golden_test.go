package tables

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The keys of the store's tables are written and read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "key", func(*release.Active) []golden.Record {
		l := NewLayout(keys.CoordinationPartition)
		return []golden.Record{
			{Name: "applied", Data: l.Applied},
			{Name: "applied-value", Data: EncodeApplied(500, 7)},
			{Name: "meta", Data: l.Meta},
			{Name: "members", Data: l.Members},
			{Name: "version", Data: l.Version([]byte("k\x00y"), 300)},
			{Name: "event", Data: l.Event(300, 5)},
			{Name: "lease", Data: l.Lease(-2)},
			{Name: "attached", Data: l.Attached(9, []byte("key"))},
			{Name: "session", Data: l.Session(9)},
			{Name: "answer", Data: l.Answer(9, 7)},
			{Name: "alarm", Data: l.Alarm(&storepb.Alarm{Member: 9, Type: storepb.Alarm_CORRUPT})},
			{Name: "user", Data: l.AuthKey(authority.UserTable, "root")},
			{Name: "role", Data: l.AuthKey(authority.RoleTable, "root")},
		}
	}, func(r golden.Record) (err error) {
		switch r.Name {
		case "version":
			_, _, err = DecodeVersionKey(r.Data)
		case "event":
			_, _, err = DecodeEventKey(r.Data)
		case "applied-value":
			_, _, err = DecodeApplied(r.Data)
		case "user", "role":
			_, err = decodeNameKey(r.Data)
		}
		return err
	})
}
