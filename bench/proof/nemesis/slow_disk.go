package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
)

// A node whose disk is slow has to hand over what it leads: writes that have a quorum without it
// must not be as slow as its disk, for as long as it is. The fault keeps one disk slow for long
// enough that the node is bound to have noticed, and measures the pace of the probes' writes before
// and then. Whatever else slows the machine down slows the other partitions down as well, so the
// pace of those that the node led is compared with theirs.

const (
	// usualPace is for how long the pace is measured before the disk becomes slow.
	usualPace = 3 * time.Second
	// noticedAfter is after how long of a slow disk its node has handed over what it leads.
	noticedAfter = 15 * time.Second
	// leastPace is what is then left at least of the pace of the partitions that it led, as a part
	// of what is left of that of others.
	leastPace = 0.5
)

// slowForLong slows the disk down of the node that leads the most of the probes' partitions.
func slowForLong(w *world, random *rand.Rand, hold time.Duration) (*fault, error) {
	server := mostOf(w.placed.leaders())
	begin := w.pace.Now()
	time.Sleep(usualPace)
	before := paceOf{from: begin, to: w.pace.Now()}
	f, err := stutterOf(w, server, fleet.Stutter{Still: between(random, 120*ms, 220*ms),
		Works: between(random, ms, 5*ms)}, hold)
	if err != nil {
		return nil, err
	}
	led := w.placed.ledBy(server)
	var noticed availability.Count
	f.what += fmt.Sprintf("; it led %d of %d partitions", len(led), probePartitions)
	f.next, f.again = noticedAfter, func() (time.Duration, error) {
		noticed = w.pace.Now()
		return hold, nil
	}
	over := f.end
	f.end = func() error {
		now := w.pace.Now()
		if text := before.lost(paceOf{noticed, now}, led, w.placed.without(server)); text != "" {
			w.proof.Violation("the disk of %s has been slow for %v, and %s; it leads %s",
				w.servers[server].Name, hold.Round(ms), text, w.ledNow(server))
		}
		return over()
	}
	return f, nil
}

// paceOf is the time between two counts.
type paceOf struct{ from, to availability.Count }

// lost says what is wrong with a later pace of the partitions that a server led, beside that of
// the partitions of which it has no replica; empty: nothing.
func (p paceOf) lost(later paceOf, led, others []int) string {
	kept := func(partitions []int) float64 {
		before := availability.Rate(p.from, p.to, partitions)
		if before == 0 {
			return 1 // there are none, or they did not answer before either
		}
		return availability.Rate(later.from, later.to, partitions) / before
	}
	own, usual := kept(led), min(1, kept(others))
	if own >= leastPace*usual {
		return ""
	}
	return fmt.Sprintf("writes of the partitions that it led go on at %.0f %% of their pace, those "+
		"of others at %.0f %%", 100*own, 100*usual)
}

// mostOf is what a list has most often.
func mostOf(list []int) (most int) {
	times := make(map[int]int)
	for _, x := range list {
		if times[x]++; times[x] > times[most] || times[most] == 0 {
			most = x
		}
	}
	return most
}

// ledBy are the partitions that a server leads.
func (p *placement) ledBy(server int) (led []int) {
	for partition, leader := range p.leader {
		if leader == server {
			led = append(led, partition)
		}
	}
	return led
}

// without are the partitions of which a server has no replica.
func (p *placement) without(server int) (others []int) {
	for partition, voters := range p.voters {
		if !slices.Contains(voters, server) {
			others = append(others, partition)
		}
	}
	return others
}

// ledNow says how many of the probes' partitions a server leads at present.
func (w *world) ledNow(server int) string {
	now, err := w.where(context.Background())
	if err != nil {
		return fmt.Sprintf("an unknown number of partitions (%v)", err)
	}
	return fmt.Sprintf("%d partitions", len(now.ledBy(server)))
}
