package main

import (
	"maps"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

func TestDetour(t *testing.T) {
	type table = map[links.Link]links.Shape
	slow := links.Shape{Delay: 163 * ms, Jitter: 11 * ms}
	cut := links.Shape{Cut: true}
	join := func(tables ...table) table {
		all := table{}
		for _, one := range tables {
			maps.Copy(all, one)
		}
		return all
	}
	between := table{}
	for _, i := range allServers() {
		maps.Copy(between, around(i, true, false, false, slow))
	}
	voters := []int{3, 4, 6}
	for _, c := range []struct {
		name   string
		shapes table
		voters []int
		want   time.Duration
	}{
		{"nothing", nil, voters, 0},
		{"all links of one that may lead", around(6, true, true, true, slow), voters, 4 * 174 * ms},
		{"and the core is silent to it", join(around(6, true, true, true, slow),
			table{{From: 1, To: 6}: cut}), voters, 4 * 174 * ms},
		{"all links of one without a replica", around(7, true, true, true, slow), voters, 0},
		{"all links between servers", between, voters, 2 * 174 * ms},
		{"one link, which no quorum needs", table{{From: 3, To: 4}: slow}, voters, 0},
		{"one link, and the other follower is cut off", table{{From: 3, To: 4}: slow,
			{From: 3, To: 6}: cut}, voters, 174 * ms},
		{"a leader that no client reaches", join(around(6, true, true, false, slow),
			table{{From: links.Clients, To: 6}: cut}), voters, 0},
		{"a leader without a quorum", join(table{{From: links.Clients, To: 6}: slow},
			around(6, false, true, false, cut)), voters, 0},
		{"a single replica", around(6, true, true, true, slow), []int{6}, 2 * 174 * ms},
	} {
		if got := detour(c.shapes, c.voters); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
