package proof

import (
	"testing"
	"time"
)

// Nobody may be aborted for an older transaction if all others began later for certain, whatever attempt this is, and if those that began before it
// ended long ago.
func TestAges(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var a ages
	first := a.begin(at(0))
	second := a.begin(at(2 * time.Second))
	if a.wounded(second, at(3*time.Second)) != "" {
		t.Error("the second was aborted for the first, and may be")
	}
	if a.wounded(first, at(3*time.Second)) == "" {
		t.Error("the first was aborted for a younger one")
	}
	a.attempt(first, at(4*time.Second))
	if a.wounded(first, at(4*time.Second)) == "" {
		t.Error("the first, running again, was aborted for a younger one")
	}
	near := a.begin(at(500 * time.Millisecond))
	if a.wounded(first, at(5*time.Second)) != "" {
		t.Error("the first was aborted for one that began at about the same time, and may be")
	}
	a.end(near, at(6*time.Second), true)
	a.attempt(first, at(7*time.Second))
	if a.wounded(first, at(8*time.Second)) != "" {
		t.Error("one that has just failed may still be in the way")
	}
	a.attempt(first, at(6*time.Second+ageLinger+1))
	if a.wounded(first, at(40*time.Second)) == "" {
		t.Error("one that failed long ago cannot be in the way")
	}
	soon := a.begin(at(700 * time.Millisecond))
	a.end(soon, at(41*time.Second), false)
	a.attempt(first, at(41*time.Second))
	if a.wounded(first, at(42*time.Second)) != "" {
		t.Error("one that has succeeded during the attempt may have been in the way")
	}
	a.attempt(first, at(43*time.Second))
	if a.wounded(first, at(44*time.Second)) == "" {
		t.Error("one that succeeded before the attempt cannot be in the way")
	}
	a.end(second, at(2*time.Hour), false)
	if n := len(a.mu.all); n != 2 {
		t.Errorf("%d are remembered, of which one does not matter any more", n)
	}
}
