package timing

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The parts of a request add up to its total, whatever the order in which times come.
func TestPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		began := time.Now()
		r := Start(began)
		defer r.Release()
		for range rapid.IntRange(0, 2*maxSegments).Draw(t, "steps") {
			r.EnterAt(Part(rapid.IntRange(0, int(Parts)-1).Draw(t, "part")),
				began.Add(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "at"))))
		}
		total, sum := r.Total(), time.Duration(0)
		for p := range Parts {
			if r.Spent(p) < 0 {
				t.Fatalf("%s took %s", p, r.Spent(p))
			}
			sum += r.Spent(p)
		}
		if sum != total {
			t.Fatalf("the parts take %s, and all takes %s", sum, total)
		}
		last := time.Duration(0)
		for _, s := range r.Segments() {
			if s.From != last || s.To <= s.From {
				t.Fatalf("the segment %+v follows one that ends at %s", s, last)
			}
			last = s.To
		}
	})
}

func TestNilRequestIsOff(t *testing.T) {
	var r *Request
	r.Enter(Lock)
	r.EnterAt(Log, time.Now())
	r.Block(Blocked{Key: "k"})
	r.Release()
}

func TestReleasedRequestIsEmpty(t *testing.T) {
	r := Start(time.Now())
	r.Enter(Lock)
	r.Block(Blocked{Key: "k", Transaction: "t"})
	r.Total()
	r.Release()
	for range 10 { // the pool may give another one
		again := Start(time.Now())
		if again.Blocked() != (Blocked{}) || len(again.Segments()) != 0 || again.Spent(Queue) != 0 ||
			again.Spent(Lock) != 0 {
			t.Fatalf("a new request has %+v", again)
		}
	}
}

func TestNamesOfParts(t *testing.T) {
	for p := range Parts {
		if got, ok := PartNamed(p.String()); !ok || got != p {
			t.Errorf("%s is read as %s", p, got)
		}
	}
	if _, ok := PartNamed("tea"); ok {
		t.Error("tea is a part")
	}
}

// BenchmarkRequest is what the timing of a request that waits for nothing costs.
func BenchmarkRequest(b *testing.B) {
	arrived := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		r := Start(arrived)
		r.EnterAt(Evaluate, arrived)
		r.Total()
		r.Release()
	}
}
