package main

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

// detour returns the time that slow links add to a request to a partition with these voters. The
// request goes from the clients to the leader, from the leader to the followers that complete a
// quorum and back, and back to the clients. detour assumes the leader with the slowest links,
// because leadership depends on heartbeats, and a leader with slow links keeps its leadership. A
// read can take as long as a write: it waits for a write of its key that is under way, if its
// session has seen a later timestamp.
//
// A leader that the clients or a quorum cannot reach does not count, because a longer time limit
// does not help there.
func detour(shapes map[links.Link]links.Shape, voters []int) (longest time.Duration) {
	there := func(from, to links.Host) (time.Duration, bool) {
		out, back := shapes[links.Link{From: from, To: to}], shapes[links.Link{From: to, To: from}]
		return out.Delay + out.Jitter + back.Delay + back.Jitter, !out.Cut && !back.Cut
	}
	for _, voter := range voters {
		leader := links.Host(voter)
		way, ok := there(links.Clients, leader)
		if !ok {
			continue
		}
		var trips []time.Duration // from this leader to each follower and back
		for _, other := range voters {
			if trip, ok := there(leader, links.Host(other)); ok && other != voter {
				trips = append(trips, trip)
			}
		}
		followers := len(voters) / 2 // the followers that a quorum needs
		if len(trips) < followers {
			continue
		}
		slices.Sort(trips)
		if followers > 0 {
			way += trips[followers-1]
		}
		longest = max(longest, way)
	}
	return longest
}
