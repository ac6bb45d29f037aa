package rolling

import (
	"strings"
	"testing"
)

// The list of releases is in order, and the release before a commit is the newest other one.
func TestReleases(t *testing.T) {
	if _, err := parse(releases); err != nil {
		t.Error(err)
	}
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	all, err := parse("# comment\n\nv0.1.0 " + one + "\nv0.2.0 " + two + "\n")
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for commit, want := range map[string]string{one: "v0.2.0", two: "v0.1.0", "": "v0.2.0"} {
		if former, ok := before(all, commit); !ok || former.version != want {
			t.Errorf("before %q: %v, %t", commit, former, ok)
		}
	}
	if former, ok := before(all[:1], one); ok {
		t.Errorf("before the first one: %v", former)
	}
	for _, wrong := range []string{"v0.1.0", "v0.1 " + one, "v0.1.0 " + one[1:], one + " v0.1.0"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
