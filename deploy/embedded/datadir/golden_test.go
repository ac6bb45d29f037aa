package datadir

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/authcache"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The files of the directory itself are written and read as in every release.
func TestGolden(t *testing.T) {
	read := func(fs vfs.FS, name string) []byte {
		f, err := fs.Open("d/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(f); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	must := func(errs ...error) {
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	files := map[string]string{"recoveries": recoveryFile}
	golden.Check(t, "file", func(level *release.Active) (records []golden.Record) {
		fs := vfs.NewMem()
		d, err := Open(fs, "d", func() uint64 { return 0xabc })
		must(err)
		defer d.Close()
		note := func(name string) {
			records = append(records, golden.Record{Name: name, Data: read(fs, IdentityFile)})
		}
		note("identity-new")
		must(d.Join(0xc1), d.BecomeCore(), d.KnowsMembers([]string{"a:1", "b:1"}),
			d.BecomeNode(3, "a:1"))
		note("identity-joined")
		must(d.SetGuards(authcache.Flag{Version: 2, On: true}))
		note("identity-guarded")
		must(d.SetLevels(releasemark.Levels{Noted: level.Level(), Active: level.Level() - 1}))
		note("identity-noted")
		must(d.SetLevels(releasemark.Levels{Noted: level.Level(), Active: level.Level()}))
		note("identity-active")
		at := time.Unix(1_700_000_000, 0).UTC()
		must(d.SetRecoveries(&RecoveryRecords{Format: recoveryFormat,
			Begun: &RecoveryRecord{Plan: "p", Time: at, Lost: []uint64{4}},
			Done: []RecoveryRecord{{Plan: "q", Time: at, Recovered: 1, Retired: 2, MayLack: 3,
				Core: true}}}))
		return append(records, golden.Record{Name: "recoveries", Data: read(fs, recoveryFile)})
	}, func(r golden.Record) error {
		fs := vfs.NewMem()
		d, err := Open(fs, "d", func() uint64 { return 1 })
		must(err)
		name := files[r.Name]
		if name == "" {
			name = IdentityFile
		}
		must(d.ReplaceFile(name, r.Data), d.Close())
		if d, err = Open(fs, "d", nil); err != nil {
			return err
		}
		defer d.Close()
		if _, err := d.Recoveries(); err != nil {
			return err
		}
		return mustSupport(d)
	})
}

// mustSupport checks that this program starts with a directory: with all but those that have noted
// a level and belong to a cluster whose level the program no longer supports.
func mustSupport(d *Directory) error {
	supported, kept := release.Supported(), d.Levels()
	err := d.MustSupport(supported)
	if refused := kept.Noted > 0 && !supported.Contains(kept.Active); refused != (err != nil) {
		return fmt.Errorf("noted %+v, supported %s, refused with %v", kept, supported, err)
	}
	return nil
}
