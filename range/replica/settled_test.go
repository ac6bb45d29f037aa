package replica

import (
	"context"
	"testing"
)

// A descriptor is settled when an entry is applied that was proposed after the descriptor was known
// to be committed. Entries that were in the log before do not count: with them no disk has learned
// that.
func TestSettledBehindTheLog(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	leader := s.members[0].replica
	left, right := splitAt(leader.Descriptor(), "m", 200)
	if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	for leader.Descriptor().GetGeneration() != left.Generation {
		s.must(s.askOf(leader, left.Generation, putOf("a", "")))
	}
	at, _ := leader.Applied()
	s.mu.Lock()
	s.appended = at + 2
	s.mu.Unlock()
	for {
		index, _ := leader.Applied()
		if got, want := leader.Settled(), index > at+2; got != want {
			t.Errorf("settled behind entry %d: %v; it was applied at %d, and the log had entries up to %d",
				index, got, at, at+2)
		}
		if index > at+2 {
			return
		}
		s.must(s.askOf(leader, left.Generation, putOf("a", "")))
	}
}
