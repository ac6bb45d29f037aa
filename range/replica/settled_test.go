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
	before, _ := leader.Applied()
	last := before + 4
	s.mu.Lock()
	s.appended = last
	s.mu.Unlock()
	left, right := splitAt(leader.Descriptor(), "m", 200)
	if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	for {
		index, _ := leader.Applied()
		if got, want := leader.Settled(), index > last; got != want {
			t.Errorf("settled when entry %d is applied: %v; the split was applied behind entry %d, and "+
				"the log had entries up to %d", index, got, before, last)
		}
		if index > last {
			return
		}
		s.must(s.askOf(leader, left.Generation, putOf("a", "")))
	}
}
