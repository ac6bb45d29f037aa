package health

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// slowTimes is a factor. The delay of a slow server is at least slowTimes the delay of the others.
	slowTimes = 8
	// slowWait and slowTrip are the least delays of a slow server, whatever the delays of the others
	// are.
	slowWait = 50 * time.Millisecond
	slowTrip = 10 * time.Millisecond
)

// Delays are the delays of one server.
type Delays struct {
	// Server is the id of the server. RoundTrips of other servers use the same id.
	Server uint64
	// Region is the region of the server. Round trips between regions are not compared.
	Region string
	// ProcessorWait and RoundTrips have the same meanings as in admin.NodeInfo.
	ProcessorWait time.Duration
	RoundTrips    map[uint64]time.Duration
}

// Slow is a server that is slow compared to the others.
type Slow struct {
	Server uint64
	// Took is the delay of the server, and Usual the delay of the others.
	Took, Usual time.Duration
}

// SlowProcessors returns the servers whose processes wait for a processor many times longer than
// those of the others, in the order of the servers. If half of the servers or more wait, it returns
// none: then the cause is the machines or the load in general.
func SlowProcessors(all []Delays) []Slow {
	waits := map[uint64]time.Duration{}
	for _, d := range all {
		if d.ProcessorWait > 0 {
			waits[d.Server] = d.ProcessorWait
		}
	}
	return slowBeside(waits, slowWait)
}

// SlowNetworks returns the servers to which messages take many times longer than between the other
// servers of the region, in the order of the servers. A server counts as slow only if messages to
// half of the others are slow. So of a slow server and a fast one, the fast one is not returned.
func SlowNetworks(all []Delays) []Slow {
	var slow []Slow
	regions := map[string][]Delays{}
	for _, d := range all {
		regions[d.Region] = append(regions[d.Region], d)
	}
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		trips := map[uint64]time.Duration{}
		for _, d := range regions[region] {
			var own []time.Duration
			for _, other := range regions[region] {
				if took := d.RoundTrips[other.Server]; took > 0 {
					own = append(own, took)
				}
			}
			if len(own) > 0 {
				trips[d.Server] = lowerMedian(own)
			}
		}
		slow = append(slow, slowBeside(trips, slowTrip)...)
	}
	return slow
}

// slowBeside returns the servers whose delay is many times the delay of most of the others.
func slowBeside(delays map[uint64]time.Duration, least time.Duration) (slow []Slow) {
	for _, server := range slices.Sorted(maps.Keys(delays)) {
		var others []time.Duration
		for other, took := range delays {
			if other != server {
				others = append(others, took)
			}
		}
		if len(others) == 0 {
			continue
		}
		slices.Sort(others)
		usual := others[len(others)/2]
		if took := delays[server]; took >= max(least, slowTimes*usual) {
			slow = append(slow, Slow{server, took, usual})
		}
	}
	slices.SortStableFunc(slow, func(a, b Slow) int { return cmp.Compare(a.Server, b.Server) })
	return slow
}

// lowerMedian returns the greatest delay in the lower half.
func lowerMedian(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)/2]
}
