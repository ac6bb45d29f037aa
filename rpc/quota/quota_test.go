package quota

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Who takes nothing leaves nothing behind.
func TestNothingIsHeldForNothing(t *testing.T) {
	b := NewBytes(120, 0)
	if !b.Take("a", 0) {
		t.Error("nothing is not given")
	}
	b.Force("b", 0)
	if len(b.held) > 0 {
		t.Errorf("held: %v", b.held)
	}
}

// TestShares: one party gets half, two a third each, and a party that comes later gets something.
func TestShares(t *testing.T) {
	p := NewPlaces(120, 1, 0)
	lost := map[string]int{}
	fill := func(of string, n int) {
		for range n {
			p.Enter(of, func() { lost[of]++ })
		}
	}
	fill("a", 1000)
	if held := p.Held(); held != 60 || lost["a"] != 940 {
		t.Errorf("a holds %d, and has lost %d", held, lost["a"])
	}
	fill("b", 1000)
	if held := p.Held(); held != 90 || lost["a"] != 940 {
		t.Errorf("a and b hold %d, and a has lost %d", held, lost["a"])
	}
	for i := range 200 {
		fill(fmt.Sprint(i), 1)
	}
	if held := p.Held(); held != 120 {
		t.Errorf("%d are held", held)
	}
	b := NewBytes(120, 0)
	taken := 0
	for b.Take("a", 1) {
		taken++
	}
	if taken != 60 || !b.Take("b", 30) || b.Take("b", 1) {
		t.Errorf("a has %d of 120 bytes, and both have %d", taken, b.Held())
	}
}

// TestAFewAreGranted whatever the share.
func TestAFewAreGranted(t *testing.T) {
	b := NewBytes(100, 10)
	if !b.Take("a", 50) || !b.Take("b", 25) || !b.Take("c", 12) || !b.Take("d", 10) {
		t.Fatalf("%d are held", b.Held())
	}
	if b.Take("e", 4) {
		t.Error("more than there are")
	}
	if !b.Take("e", 3) {
		t.Error("what is left was not to be had")
	}
}

// TestPlacesModel: the books are right whatever happens.
func TestPlacesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		p := NewPlaces(limit, rapid.IntRange(0, 3).Draw(t, "granted"), 0)
		holds := map[*Place]bool{}
		var all []*Place
		lost := 0
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				var place *Place
				before := len(holds)
				lost = 0
				of := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "party")
				place = p.Enter(of, func() { delete(holds, place); lost++ })
				holds[place] = true
				all = append(all, place)
				if lost > 1 || len(holds) != before+1-lost {
					t.Fatalf("%d lost their places", lost)
				}
			},
			"leave": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("no place is held")
				}
				place := rapid.SampledFrom(all).Draw(t, "place")
				place.Leave()
				delete(holds, place)
			},
			"": func(t *rapid.T) {
				if p.Held() != len(holds) || p.Held() > limit {
					t.Fatalf("%d are held, of %d; %d know of it", p.Held(), limit, len(holds))
				}
			},
		})
	})
}

// TestPlacesSettle: a place that was taken a moment ago is not lost; the newcomer is refused.
func TestPlacesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(4, 0, 10*time.Second)
		lost := 0
		enter := func(of string) *Place { return p.Enter(of, func() { lost++ }) }
		for range 2 {
			if enter("a") == nil {
				t.Fatal("there were places")
			}
		}
		if enter("a") != nil || lost != 0 {
			t.Errorf("a third place, and %d lost theirs", lost)
		}
		if enter("b") == nil {
			t.Error("another party has no place")
		}
		time.Sleep(10 * time.Second)
		if enter("a") == nil || lost != 1 {
			t.Errorf("places are held for a while, and %d lost theirs", lost)
		}
	})
}
