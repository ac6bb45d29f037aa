package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
)

func TestServes(t *testing.T) {
	for _, c := range []struct {
		name string
		e    []effect
		want bool
	}{
		{"nothing", nil, true},
		{"one of three gone", []effect{{gone: servers(3)}}, true},
		{"two gone", []effect{{gone: servers(3, 4)}}, false},
		{"two gone by two faults", []effect{{gone: servers(3)}, {gone: servers(4)}}, false},
		{"others gone", []effect{{gone: servers(0, 1, 2, 6, 7)}}, true},
		{"a replica out of the clients' reach", []effect{{apart: servers(5)}}, false},
		{"split with a majority on one side", []effect{{side: map[int]int{3: 1, 6: 1}}}, true},
		{"split, and one of the majority gone", []effect{{side: map[int]int{3: 1, 6: 1}},
			{gone: servers(4)}}, false},
	} {
		if got := join(c.e).serves([]int{3, 4, 5}); got != c.want {
			t.Errorf("%s: serves %v, want %v", c.name, got, c.want)
		}
	}
}

func TestUnexplained(t *testing.T) {
	begin := time.Now()
	gap := func(from, to int) availability.Gap {
		return availability.Gap{From: begin.Add(time.Duration(from) * time.Second),
			To: begin.Add(time.Duration(to) * time.Second)}
	}
	whole := begin.Add(20 * time.Second)
	for _, c := range []struct {
		gap    availability.Gap
		serves bool
		says   string
	}{
		{gap(0, 5), true, ""},
		{gap(0, 6), true, "a quorum was there"},
		{gap(0, 22), false, ""},
		{gap(0, 26), false, "6s of it everything was whole"},
	} {
		got := unexplained(c.gap, c.serves, whole, 5*time.Second)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%v, serves %v: %q, want %q", c.gap.Length(), c.serves, got, c.says)
		}
	}
}
