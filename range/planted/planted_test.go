package planted

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every bug has the file that its tag takes in, and every such file is of a bug; and this build has none unless it was asked for.
func TestFiles(t *testing.T) {
	want := make(map[string]Bug)
	for _, b := range All() {
		want[fmt.Sprintf("bug_%s.go", b)] = b
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "bug_") {
			continue
		}
		b, ok := want[e.Name()]
		if !ok {
			t.Errorf("%s is of no bug in All", e.Name())
			continue
		}
		delete(want, e.Name())
		text, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("//go:build planted && planted_%s\n", b); !strings.HasPrefix(string(text), line) {
			t.Errorf("%s does not begin with %q", e.Name(), line)
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func TestNone(t *testing.T) {
	if Active != None {
		t.Skipf("this build has a bug planted: %s", Active)
	}
}
