package golden

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/release"
)

// A golden file is read as it was written, and a damaged one is not read.
func TestFiles(t *testing.T) {
	for file, n := range map[string]int{"": 0, "# comment\n\na 00ff\nb \n": 2, "a 0": -1, "a": -1,
		"a 00\na 01\n": -1} {
		records, err := parse([]byte(file))
		if (err != nil) != (n < 0) || err == nil && len(records) != n {
			t.Errorf("%q: %v, %v", file, records, err)
		}
	}
	if got := Path(release.V0_1, "entry"); got != "testdata/golden/level1/entry" {
		t.Error(got)
	}
	if At(1).Allows(release.Gate{Level: 2}) || !At(2).Allows(release.Gate{Level: 2}) {
		t.Error("the level at which an encoder is asked")
	}
}
