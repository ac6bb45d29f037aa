package raftlog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestRewrite: a log begins anew behind what is applied, under a later replica id, in a term
// without a vote. The same again changes nothing, and what was removed or replaced does not come
// back.
func TestRewrite(t *testing.T) {
	fs := vfs.NewMem()
	f := open(t, fs)
	other := Identity{Group: 43, Replica: 1}
	if err := f.log.Create(identity, other); err != nil {
		t.Fatal(err)
	}
	g := f.openGroup(applied(0, 0))
	f.submit(&Append{Group: g, HardState: hardState(3, 2, 4), Entries: entries(3, 1, 5)})
	f.log.CloseGroup(g)
	later := Identity{Group: 42, Replica: 1007, Descriptor: []byte("alone")}
	rewrite := Rewrite{Identity: later, Index: 5, Term: 3, HardTerm: 4}
	for range 2 {
		if err := f.log.Rewrite(rewrite); err != nil {
			t.Fatal(err)
		}
	}
	f.close()

	f = open(t, fs)
	defer f.close()
	ids, err := f.log.Identities()
	if err != nil || len(ids) != 2 || ids[0].Replica != 1007 ||
		string(ids[0].Descriptor) != "alone" ||
		len(ids[0].Voters) != 0 || ids[1].Replica != 1 {
		t.Fatal(ids, err)
	}
	if g, err = f.log.OpenGroup(later, applied(5, 3)); err != nil {
		t.Fatal(err)
	}
	hard, _, err := g.InitialState()
	if err != nil || hard.GetTerm() != 4 || hard.GetVote() != 0 || hard.GetCommit() != 5 {
		t.Errorf("the hard state is %v, %v", hard, err)
	}
	first, last, _ := g.Extent()
	if term, err := g.Term(5); first != 6 || last != 5 || term != 3 || err != nil {
		t.Errorf("the log goes from %d to %d, behind an entry of term %d: %v", first, last, term, err)
	}
	f.log.CloseGroup(g)
	// All or none.
	for _, id := range []Identity{identity, {Group: 44, Replica: 1},
		{Group: 42, Replica: keys.ReplicaID(1006)}} {
		err := f.log.Rewrite(Rewrite{Identity: Identity{Group: 43, Replica: 5}, Index: 1, Term: 1,
			HardTerm: 1},
			Rewrite{Identity: id, Index: 5, Term: 3, HardTerm: 4})
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("replica %s of group %s: %v", id.Replica, id.Group, err)
		}
	}
	if ids, err = f.log.Identities(); err != nil || ids[1].Replica != 1 {
		t.Errorf("what was refused has changed another one: %v, %v", ids, err)
	}
}
