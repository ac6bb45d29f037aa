package golden

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Record is one example of a format: the encoding of a fixed value.
type Record struct {
	// Name describes the example. It has no spaces.
	Name string
	Data []byte
}

// At returns an Active at a level, for an encoder.
func At(l release.Level) *release.Active {
	a := &release.Active{}
	a.Raise(l)
	return a
}

// Check fails the test unless encode makes, at every level from release v0.1 on, the bytes of the
// golden files, and decode accepts each of them. decode may be nil for records that are only
// compared.
func Check(t *testing.T, format string, encode func(*release.Active) []Record,
	decode func(Record) error) {
	t.Helper()
	for level := release.V0_1; level <= release.Newest; level++ {
		path := Path(level, format)
		got := encode(At(level))
		want, err := os.ReadFile(path)
		switch {
		case os.IsNotExist(err) && level == release.Newest && update:
			want = write(t, path, format, level, got)
		case err != nil:
			t.Fatalf("%s at %s has no golden file (%v): `make golden` writes that of a new format", format,
				level, err)
		}
		records, err := parse(want)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		compare(t, path, level, records, got)
		for _, r := range records {
			if decode == nil {
				break
			}
			if err := decode(r); err != nil {
				t.Errorf("%s, which %s has written, is not read any more: %s: %v", path, level.Release(),
					r.Name, err)
			}
		}
	}
}

// Path returns the path of a format's golden file, relative to the folder of the package under
// test.
func Path(l release.Level, format string) string {
	return filepath.Join("testdata", "golden", fmt.Sprintf("level%d", uint32(l)), format)
}

func compare(t *testing.T, path string, level release.Level, want, got []Record) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got), i >= len(want), want[i].Name != got[i].Name:
			t.Errorf("%s has other examples than the test: add new ones under a new level, or as another "+
				"format", path)
			return
		case !bytes.Equal(want[i].Data, got[i].Data):
			t.Errorf("%s: at %s, %s is written as\n%x\nand was\n%x\n%s", path, level, want[i].Name,
				got[i].Data, want[i].Data, advice(level))
		}
	}
}

// advice says what to do if bytes differ from those of a level.
func advice(level release.Level) string {
	const gate = "put the change behind a gate of the next level (docs/contributing.md, \"A change " +
		"of a format\")"
	if level > release.Tagged {
		return gate + "; or, as the release has no tag yet, and if no cluster has to be upgraded to " +
			"it, remove the file and run `make golden`"
	}
	return gate
}

// write writes a golden file, and returns its content.
func write(t *testing.T, path, format string, level release.Level, records []Record) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s at level %d: names, and bytes as hexadecimal digits. Never changed; see "+
		"package golden.\n", format, uint32(level))
	for _, r := range records {
		fmt.Fprintf(&b, "%s %x\n", r.Name, r.Data)
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parse(file []byte) (records []Record, err error) {
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || line[0] == '#' {
			continue
		}
		name, digits, ok := strings.Cut(line, " ")
		data, err := hex.DecodeString(digits)
		if !ok || err != nil ||
			slices.ContainsFunc(records, func(r Record) bool { return r.Name == name }) {
			return nil, fmt.Errorf("line %q is malformed", line)
		}
		records = append(records, Record{name, data})
	}
	return records, nil
}
