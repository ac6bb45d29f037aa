package watch

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// TestRingPrevious has revision 2 without what its key was before, and revision 3 with it: a watch that wants
// it is given nothing of revision 2 from memory.
func TestRingPrevious(t *testing.T) {
	r := &ring{limits: DefaultLimits()}
	r.reset(1)
	kv := func(revision uint64) *storepb.KeyValue {
		return &storepb.KeyValue{Key: []byte("k"), ModRevision: revision, Version: revision}
	}
	r.publish([]Revision{{Number: 2, Events: []Event{{KV: kv(2), Untold: true}}}}, 2)
	r.publish([]Revision{{Number: 3, Events: []Event{{KV: kv(3), Previous: kv(2)}}}}, 3)
	for _, c := range []struct {
		from         uint64
		previous, ok bool
	}{{2, false, true}, {2, true, false}, {3, false, true}, {3, true, true}} {
		if _, _, ok := r.read(Position{Revision: c.from}, c.previous); ok != c.ok {
			t.Errorf("read from %d, previous %t: %t", c.from, c.previous, ok)
		}
		if _, ok := r.since(c.from, 4, c.previous, 10); ok != c.ok {
			t.Errorf("since %d, previous %t: %t", c.from, c.previous, ok)
		}
	}
	if st, _, _ := r.read(Position{Revision: 2}, false); st.previous {
		t.Error("a stretch with revision 2 claims to say what its keys were before")
	}
}
