package read

import "testing"

// TestAnnouncements: the others are told once for all reads that are admitted meanwhile, and again
// if there was more, or if the last time failed.
func TestAnnouncements(t *testing.T) {
	var a announcement
	if !a.want(3) || a.want(2) || a.want(5) {
		t.Fatal("told at once, and not twice at a time")
	}
	if !a.over(nil) {
		t.Fatal("index 5 was wanted meanwhile")
	}
	if a.over(nil) || a.want(5) || a.want(4) {
		t.Fatal("all is told")
	}
	if !a.want(6) || a.over(errTest{}) || !a.want(7) {
		t.Fatal("after a failure the next read has the others told")
	}
}

type errTest struct{}

func (errTest) Error() string { return "no quorum" }

// TestReadIndexesAreShared: reads that come while a read index is asked for wait for the next one.
func TestReadIndexesAreShared(t *testing.T) {
	var w waitingReads
	if !w.confirm(new(read)) || w.confirm(new(read)) {
		t.Fatal("one question at a time")
	}
	if n := len(w.ask()); n != 2 {
		t.Fatalf("%d reads wait for the first", n)
	}
	if w.confirm(new(read)) {
		t.Fatal("the first question is under way")
	}
	if n := len(w.ask()); n != 1 {
		t.Fatalf("%d reads wait for the second", n)
	}
	if w.ask() != nil || !w.confirm(new(read)) {
		t.Fatal("nothing is asked for by now")
	}
}
