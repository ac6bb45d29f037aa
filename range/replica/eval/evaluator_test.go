package eval

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestRecordsOnTheirWay: the record of the newest entry is the one that is known, until that entry
// is applied.
func TestRecordsOnTheirWay(t *testing.T) {
	name := machine.NameOf(&txn.Info{ID: txn.ID{1}, Anchor: []byte("a")})
	other := machine.NameOf(&txn.Info{ID: txn.ID{1}, Anchor: []byte("b")})
	var r records
	first, second := new(txn.Record), new(txn.Record)
	r.propose(name, first, 1)
	r.propose(name, second, 2)
	r.propose(other, first, 2)
	r.applied(&machine.Entry{Sequence: 1, Records: []machine.RecordName{name}})
	if got := r.proposed[name]; got.record != second || got.sequence != 2 {
		t.Fatalf("after the first entry it is %+v", got)
	}
	r.applied(&machine.Entry{Sequence: 2, Records: []machine.RecordName{name, other}})
	if r.proposed != nil {
		t.Fatalf("%v are left", r.proposed)
	}
}
