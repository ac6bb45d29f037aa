package release

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A program takes part at its own level and at the one before, and is refused otherwise with a
// sentence that says what to start instead.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		program Range
		cluster Level
		want    []string
	}{
		{Range{0, 1}, 0, nil},
		{Range{0, 1}, 1, nil},
		{Range{1, 2}, 1, nil},
		{Range{0, 1}, 2, []string{"was finalised", "of release v0.1", "levels 0 to 1",
			"release v0.2"}},
		{Range{2, 3}, 1, []string{"the cluster is at level 1 (release v0.1)", "levels 2 to 3",
			"more than one release apart", "upgrade finalize", "of the release after v0.2",
			"a program of release v0.2"}},
		{Range{1, 2}, 0, []string{"the cluster is at level 0", "of release v0.1 instead"}},
	} {
		got := c.program.Refusal(c.cluster)
		if (got == "") != (c.want == nil) || (got == "") != c.program.Contains(c.cluster) {
			t.Errorf("%v at %v: %q", c.program, c.cluster, got)
		}
		for _, part := range c.want {
			if !strings.Contains(got, part) {
				t.Errorf("%v at %v: %q lacks %q", c.program, c.cluster, got, part)
			}
		}
	}
}

func TestThisProgram(t *testing.T) {
	if r := Supported(); r.Max != Newest || r.Min != Newest-1 || len(names) != int(Newest)+1 {
		t.Errorf("supports %v, newest %v, %d names", r, Newest, len(names))
	}
	if Newest != Tagged && Newest != Tagged+1 {
		t.Errorf("newest %v, and tagged is %v", Newest, Tagged)
	}
}

// Gates have different names, and levels that some release has.
func TestGates(t *testing.T) {
	var seen []string
	for _, g := range all {
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(g.Name) ||
			slices.Contains(seen, g.Name) || g.Level <= Before || g.Level > Newest || g.What == "" {
			t.Errorf("gate %+v", g)
		}
		seen = append(seen, g.Name)
	}
	if g, ok := Named(CoreAlarms.Name); !ok || g != CoreAlarms {
		t.Errorf("%v, %v", g, ok)
	}
	if _, ok := Named("none"); ok {
		t.Error("a gate that there is not")
	}
	if n := len(Opened(Before, Newest)); n != len(all) {
		t.Errorf("finalising everything opens %d gates of %d", n, len(all))
	}
	if open := Opened(Newest, Newest+1); len(open) > 0 {
		t.Errorf("gates of a later release: %v", open)
	}
}

// A level rises and never falls; without a level everything is allowed.
func TestActive(t *testing.T) {
	a := &Active{}
	gate := Gate{Level: 2}
	if a.Allows(gate) || !a.Raise(2) || !a.Allows(gate) || a.Raise(1) || a.Raise(2) || a.Level() != 2 {
		t.Errorf("at %v", a.Level())
	}
	if a = nil; !a.Allows(CoreAlarms) {
		t.Error("no level")
	}
}
