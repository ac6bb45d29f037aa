package main

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
)

// effect describes what a fault does to servers for its duration.
type effect struct {
	// gone servers neither vote nor serve: no server reaches them, or they stand still, or they do not
	// run.
	gone map[int]bool
	// apart servers work, but clients do not reach them, or the servers refuse the clients' requests.
	apart map[int]bool
	// side has a number for each server if the servers are split. Only servers with the same number
	// reach one another. It is nil if the servers are not split.
	side map[int]int
	// moving means that replicas move, and that servers are killed meanwhile. Then pauses are not
	// judged.
	moving bool
}

// join returns the effect of several faults together. Splits do not add up: the last split decides
// on which side a server is.
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

// serves reports whether a partition with these replicas can serve clients during the whole fault:
// a majority of the replicas can work together, and clients reach every server that might lead.
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

// servers returns a set of servers.
func servers(list ...int) map[int]bool {
	set := make(map[int]bool)
	for _, s := range list {
		set[s] = true
	}
	return set
}

// unexplained describes why a pause of a partition is longer than the faults explain. The text is
// empty if the faults explain the pause. whole is the time when all faults had ended and every
// server was ready again. limit is the longest time for an election, or for a client's search for a
// new leader.
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
