package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The files that the engine keeps beside Pebble's, and the format of Pebble's, are as in every
// release.
func TestGolden(t *testing.T) {
	golden.Check(t, "files", func(*release.Active) []golden.Record {
		var records []golden.Record
		for _, k := range []kind{kindLog, kindState} {
			fs := vfs.NewMem()
			if err := fs.MkdirAll("d", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := checkVersion(fs, "d", k); err != nil {
				t.Fatal(err)
			}
			f, err := fs.Open("d/" + versionFile)
			if err != nil {
				t.Fatal(err)
			}
			var content bytes.Buffer
			if _, err := content.ReadFrom(f); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			records = append(records, golden.Record{Name: "version-" + string(k), Data: content.Bytes()})
		}
		names := walList{options: [2]uint64{3, 4}, files: []namedWAL{{5, 6, 7}, {8, 9, 10}},
			seal: walSeal{11, 12}}
		mark := make([]byte, markOffset+markSize)
		mark[markKindOffset], mark[markLengthOffset] = 3, markSize
		walMark{sequence: 300, synced: 299}.write(mark)
		return append(records,
			golden.Record{Name: "pebble-state", Data: fmt.Append(nil, int(statePebbleFormat(t)))},
			golden.Record{Name: "wal-names", Data: bytes.TrimRight(names.encode(2), "\x00")},
			golden.Record{Name: "wal-mark", Data: mark})
	}, func(r golden.Record) error {
		switch r.Name {
		case "wal-names":
			if slot, _ := decodeSlot(r.Data); slot != 2 {
				return errWALNames
			}
		case "wal-mark":
			if m, ok := readMark(r.Data); !ok || m.sequence != 300 {
				return errWALNames
			}
		}
		return nil
	})
}

// statePebbleFormat is the format of Pebble's files in a new state database.
func statePebbleFormat(t *testing.T) uint64 {
	s := openTestState(t, Options{FS: vfs.NewMem()})
	return uint64(s.db.FormatMajorVersion())
}
