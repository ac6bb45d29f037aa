package main

import (
	"reflect"
	"testing"
	"time"
)

func someKinds() []kind {
	return []kind{
		{name: "often", weight: 8, shortest: time.Second, longest: 2 * time.Second},
		{name: "rare", weight: 2, shortest: time.Millisecond, longest: time.Millisecond},
		{name: "never", weight: 0},
		{name: "disk", weight: 5, needs: needDisk},
		{name: "frozen", weight: 5, needs: needDisk | needFreeze},
		{name: "alone", weight: 4, alone: true, longest: time.Second},
	}
}

func draw(seed uint64, have need, n int) (steps []step, counts map[string]int) {
	s := newSchedule(seed, someKinds(), have)
	counts = make(map[string]int)
	for range n {
		next := s.next()
		steps = append(steps, next)
		for _, d := range next.faults {
			counts[d.kind.name]++
		}
	}
	return steps, counts
}

func TestScheduleRepeats(t *testing.T) {
	plain := func(steps []step) (all []any) {
		for _, s := range steps {
			all = append(all, s.rest)
			for _, d := range s.faults {
				all = append(all, d.kind.name, d.hold, d.after, d.seed)
			}
		}
		return all
	}
	first, _ := draw(7, needDisk, 100)
	again, _ := draw(7, needDisk, 100)
	other, _ := draw(8, needDisk, 100)
	if !reflect.DeepEqual(plain(first), plain(again)) {
		t.Error("the same seed gives another schedule")
	}
	if reflect.DeepEqual(plain(first), plain(other)) {
		t.Error("another seed gives the same schedule")
	}
}

func TestScheduleKeepsItsBounds(t *testing.T) {
	steps, counts := draw(1, needDisk, 2000)
	if counts["never"] > 0 || counts["frozen"] > 0 {
		t.Errorf("drawn without weight, or without what it needs: %v", counts)
	}
	if ratio := float64(counts["often"]) / float64(counts["rare"]); ratio < 3 || ratio > 5.5 {
		t.Errorf("weights 8 and 2 gave %d and %d", counts["often"], counts["rare"])
	}
	together := 0
	for _, s := range steps {
		if s.rest < shortestRest || s.rest > longestRest {
			t.Fatalf("rest of %v", s.rest)
		}
		if len(s.faults) == 0 || len(s.faults) > mostTogether {
			t.Fatalf("%d faults at once", len(s.faults))
		}
		if len(s.faults) > 1 {
			together++
		}
		for i, d := range s.faults {
			if d.hold < d.kind.shortest || d.hold > d.kind.longest {
				t.Fatalf("%s for %v", d.kind.name, d.hold)
			}
			if d.after < 0 || d.after > s.faults[0].hold || i == 0 && d.after > 0 {
				t.Fatalf("fault %d begins after %v", i, d.after)
			}
			if d.kind.alone && len(s.faults) > 1 {
				t.Fatalf("%s is not alone", d.kind.name)
			}
		}
	}
	if together < 200 || together > 500 {
		t.Errorf("in %d of 2000 steps faults overlap, which should be about one in %d", together,
			togetherOneIn)
	}
}

func TestScheduleOfLoners(t *testing.T) {
	s := newSchedule(1, []kind{{name: "alone", weight: 1, alone: true}}, 0)
	for range 50 {
		if n := len(s.next().faults); n != 1 {
			t.Fatalf("%d faults", n)
		}
	}
}
