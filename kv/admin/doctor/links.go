package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

const (
	// farLink is a round trip within a region that makes every write slow.
	farLink = 20 * time.Millisecond
	// Clocks that differ by more than --max-offset / offsetShare are reported.
	offsetShare = 2
)

// clocks compares the clocks of all pairs of servers.
func (f *Facts) clocks() Check {
	c := Check{Area: "clocks"}
	const do = "run a time service (chrony, ntpd), and look at what it says of its sources"
	apart, pair := time.Duration(0), ""
	bound := time.Duration(0)
	for _, s := range f.answering() {
		bound = max(bound, s.Clock.MaxOffset)
		if s.Clock.Distrust != "" {
			c.add(Bad, s.Address, do, "%s", s.Clock.Distrust)
		}
		for _, l := range s.Links {
			// Half of a round trip is the error of the measurement.
			if off := l.Ahead.Abs() - l.RoundTrip/2; l.Failure == "" && off > apart {
				apart, pair = off, fmt.Sprintf("%s and %s", s.Address, l.Address)
			}
		}
	}
	c.Looked = fmt.Sprintf("%v apart at most, %v allowed", short(apart), bound)
	switch {
	case bound > 0 && apart > bound:
		c.add(Bad, pair, do, "the clocks are %v apart, and --max-offset allows %v: reads may be stale",
			short(apart), bound)
	case bound > 0 && apart > bound/offsetShare:
		c.add(Warning, pair, do, "the clocks are %v apart, more than half of what --max-offset allows "+
			"(%v)", short(apart), bound)
	}
	return c
}

// network looks at the links between all pairs of servers.
func (f *Facts) network() Check {
	c := Check{Area: "network"}
	servers := f.answering()
	index := map[string]uint64{}
	for i, s := range servers {
		index[s.Address] = uint64(i)
	}
	links, longest := 0, time.Duration(0)
	delays := make([]health.Delays, len(servers))
	for i, s := range servers {
		delays[i] = health.Delays{Server: uint64(i), Region: region(&s),
			RoundTrips: map[uint64]time.Duration{}}
		for _, l := range s.Links {
			links++
			other, known := index[l.Address]
			switch {
			case l.Failure != "" && known: // that a server does not answer at all is named elsewhere
				c.add(Bad, s.Address, "look at the network between the two servers, and at firewalls",
					"it does not reach %s: %s", l.Address, l.Failure)
			case l.Failure == "":
				longest = max(longest, l.RoundTrip)
				if known {
					delays[i].RoundTrips[other] = l.RoundTrip
				}
			}
		}
	}
	c.Looked = fmt.Sprintf("%s, round trips of %v at most", counted(links, "link"), short(longest))
	slow := map[uint64]bool{}
	for _, x := range health.SlowNetworks(delays) {
		slow[x.Server] = true
		c.add(Warning, servers[x.Server].Address, "look at the network of the machine: errors of the "+
			"interface, its queue, and what else uses it",
			"the network is slow: a message to it and back takes %v, between others %v", short(x.Took),
			short(x.Usual))
	}
	for i, d := range delays {
		for j, took := range d.RoundTrips {
			if uint64(i) < j && !slow[uint64(i)] && !slow[j] && took >= farLink &&
				d.Region == delays[j].Region {
				c.add(Advice, fmt.Sprintf("%s and %s", servers[i].Address, servers[j].Address),
					"give servers that are far apart a region of their own (--locality)",
					"a message and its answer take %v, and both servers are in one region", short(took))
			}
		}
	}
	slices.SortStableFunc(c.Findings, func(a, b Finding) int {
		return slices.Compare(a.Subjects, b.Subjects)
	})
	return c
}
