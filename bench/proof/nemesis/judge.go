package main

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
)

// effect is what a fault does to servers, for as long as it lasts.
type effect struct {
	// gone servers neither vote nor serve. No server reaches them, or they stand still, or they do
	// not run.
	gone map[int]bool
	// apart servers work, and clients do not reach them, or are refused by them.
	apart map[int]bool
	// side says which servers reach one another if the servers are split: only those with the same
	// number. nil if they are not.
	side map[int]int
	// moving: replicas move, and servers are killed meanwhile. What serves is not judged.
	moving bool
}

// join is the effect of several faults. Splits do not add up: a server is where the last of them
// puts it.
func join(effects []effect) effect {
	sum := effect{gone: make(map[int]bool), apart: make(map[int]bool), side: make(map[int]int)}
	for _, e := range effects {
		sum.moving = sum.moving || e.moving
		for s := range e.gone {
			sum.gone[s] = true
		}
		for s := range e.apart {
			sum.apart[s] = true
		}
		for s, side := range e.side {
			sum.side[s] = side
		}
	}
	return sum
}

// serves says whether a partition with these replicas can serve clients all the while: a majority
// of them can work together, and clients reach every server that might lead.
func (e effect) serves(voters []int) bool {
	if e.moving {
		return false
	}
	working := make(map[int]int)
	for _, s := range voters {
		if e.apart[s] {
			return false
		}
		if !e.gone[s] {
			working[e.side[s]]++
		}
	}
	for _, n := range working {
		if n > len(voters)/2 {
			return true
		}
	}
	return false
}

// servers makes a set.
func servers(list ...int) map[int]bool {
	set := make(map[int]bool)
	for _, s := range list {
		set[s] = true
	}
	return set
}

// unexplained says why a pause of a partition is longer than the faults account for; empty if it is
// not. whole is when everything was whole and every server ready again, limit how long an election,
// or a client's way to a new leader, may take.
func unexplained(gap availability.Gap, serves bool, whole time.Time, limit time.Duration) string {
	switch {
	case gap.Length() <= limit:
		return ""
	case serves:
		return fmt.Sprintf("away for %v although a quorum was there and within reach",
			gap.Length().Round(time.Millisecond))
	case gap.To.Sub(whole) > limit:
		return fmt.Sprintf("away for %v, and for %v of it everything was whole",
			gap.Length().Round(time.Millisecond), gap.To.Sub(whole).Round(time.Millisecond))
	}
	return ""
}
