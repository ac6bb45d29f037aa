package workloads

import (
	"testing"
	"time"
)

// No transaction may be aborted in favour of one that certainly began later, of an earlier attempt
// of its own, or of an unknown one. Neither the number of the attempt nor the end of the older
// transaction matters.
func TestAges(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var a ages
	begin := func(d time.Duration, attempts ...string) *age {
		own := a.begin(at(d))
		for _, id := range attempts {
			a.attempt(own, id)
		}
		return own
	}
	first, second := begin(0, "1a", "1b"), begin(2*time.Second, "2a", "2b")
	begin(500*time.Millisecond, "3a")
	ended := begin(-time.Second, "0a")
	a.end(ended, at(time.Second))
	for _, c := range []struct {
		own       *age
		by        string
		complains bool
	}{
		{second, "1a", false},
		{second, "1b", false},
		{second, "3a", false},
		{first, "0a", false},
		{first, "3a", false}, // began at about the same time
		{first, "2a", true},
		{first, "2b", true},
		{first, "1a", true},
		{first, "4a", true},
		{first, "", true},
	} {
		complaint := a.wounded(c.own, c.by, at(3*time.Second))
		if (complaint != "") != c.complains {
			t.Errorf("one that began at %v was aborted for %q: %q", c.own.began.Sub(start), c.by,
				complaint)
		}
	}
	a.end(first, at(time.Second+ageKept))
	if a.wounded(second, "0a", at(time.Minute)) != "" {
		t.Error("one that ended not too long ago is forgotten")
	}
	a.end(second, at(time.Second+ageKept+1))
	if n, ids := len(a.mu.all), len(a.mu.attempts); n != 3 || ids != 5 {
		t.Errorf("%d transactions and %d attempts are remembered, of which one does not matter "+
			"any more", n, ids)
	}
}
