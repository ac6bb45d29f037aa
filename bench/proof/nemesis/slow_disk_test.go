package main

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
)

func TestPaceBesideASlowDisk(t *testing.T) {
	began := time.Unix(0, 0)
	// pace is of three partitions, in answers a second, over two seconds.
	pace := func(a, b, c int64) paceOf {
		return paceOf{availability.Count{At: began, Answers: []int64{5, 6, 7}},
			availability.Count{At: began.Add(2 * time.Second),
				Answers: []int64{5 + 2*a, 6 + 2*b, 7 + 2*c}}}
	}
	for _, c := range []struct {
		name          string
		before, later paceOf
		led, others   []int
		lost          bool
	}{
		{"as before", pace(40, 40, 40), pace(40, 40, 40), []int{0}, []int{1, 2}, false},
		{"slower", pace(40, 40, 40), pace(21, 40, 40), []int{0}, []int{1, 2}, false},
		{"as slow as the disk", pace(40, 40, 40), pace(3, 40, 40), []int{0}, []int{1, 2}, true},
		{"one of two is", pace(40, 40, 40), pace(3, 36, 40), []int{0, 1}, []int{2}, true},
		{"the machine is slow", pace(40, 40, 40), pace(6, 10, 10), []int{0}, []int{1, 2}, false},
		{"others are faster", pace(40, 10, 10), pace(21, 40, 40), []int{0}, []int{1, 2}, false},
		{"there are no others", pace(40, 40, 40), pace(10, 10, 10), []int{0, 1, 2}, nil, true},
		{"it led nothing", pace(40, 40, 40), pace(3, 3, 3), nil, []int{1, 2}, false},
	} {
		text := c.before.lost(c.later, c.led, c.others)
		if (text != "") != c.lost {
			t.Errorf("%s: %q", c.name, text)
		}
	}
}

func TestMostOf(t *testing.T) {
	if most := mostOf([]int{4, 3, 7, 3}); most != 3 {
		t.Errorf("%d", most)
	}
	if most := mostOf([]int{5}); most != 5 {
		t.Errorf("%d", most)
	}
}
