package main

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

// detour is how much longer the links make a request to a partition with these voters: the way from
// the clients to its leader, from there to the followers that complete a quorum and back, and back
// to the clients. It is that of the worst leader: leadership goes by heartbeats, and a leader whose
// links are slow keeps it. A read can take as long as a write. It waits for a write of its key that
// is under way, if its session has seen a later timestamp.
//
// A leader that the clients or a quorum cannot reach does not count: no wait helps there.
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
		followers := len(voters) / 2 // that a quorum needs
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
