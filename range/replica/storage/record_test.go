package storage

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// Whatever decodes as an applied record encodes to the same bytes.
func FuzzAppliedRecord(f *testing.F) {
	f.Add((&Record{Index: 5, Term: 2, Highest: hlc.Timestamp{Wall: 7, Logical: 1},
		Stats: Stats{LiveKeys: 1, Versions: 2, Bytes: 3}}).Append(nil))
	for _, expiring := range []uint64{2, 1 << 63} {
		f.Add((&Record{Index: 5, Term: 2,
			Stats: Stats{LiveKeys: 1, Versions: 2, Bytes: 3, Expiring: expiring}}).Append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := DecodeApplied(data); err == nil && !bytes.Equal(a.Append(nil), data) {
			t.Fatalf("%x does not encode to itself", data)
		}
	})
}

// An entry takes effect only on top of the one that it was evaluated on, and no delta takes from a
// count more than is there.
func TestRecordAdvances(t *testing.T) {
	r := Record{}
	step := func(term uint64, e proposal.Entry, accepted bool) {
		t.Helper()
		if r.Accepts(term, &e) != accepted {
			t.Fatalf("entry %d on top of %d in term %d: accepted is %v", e.Sequence, e.Base, term,
				!accepted)
		}
		if accepted {
			if err := r.Advance(term, &e); err != nil {
				t.Fatal(err)
			}
		}
	}
	step(2, proposal.Entry{Sequence: 7, Delta: proposal.Delta{Versions: 3}}, true)
	step(2, proposal.Entry{Sequence: 9, Base: 8}, false) // 8 was lost
	step(2, proposal.Entry{Sequence: 10, Base: 7, Delta: proposal.Delta{Versions: -1}}, true)
	step(3, proposal.Entry{Sequence: 1, Base: 10}, false) // that was another leader's
	step(3, proposal.Entry{Sequence: 1}, true)
	if r.Stats.Versions != 2 {
		t.Fatalf("%d versions", r.Stats.Versions)
	}
	err := r.Advance(3, &proposal.Entry{Sequence: 2, Delta: proposal.Delta{Versions: -3}})
	if !errors.Is(err, proposal.ErrMalformed) {
		t.Fatal(err)
	}
}
