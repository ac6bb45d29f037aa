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

// A node with a slow disk has to transfer its leaderships: writes that have a quorum without the
// node must not be slowed by the node's disk for the whole fault. The fault slows one disk for a
// time in which the node must notice. It measures the pace of the probes' writes before the fault
// and after the node must have noticed. Other loads of the machine slow all partitions. So the pace
// of the partitions that the node led is compared with the pace of the other partitions.

const (
	// usualPace is the time for which the pace is measured before the disk becomes slow.
	usualPace = 3 * time.Second
	// noticedAfter is the time after which the node must have transferred its leaderships.
	noticedAfter = 15 * time.Second
	// leastPace bounds the loss of pace. The pace of the partitions that the node led must keep at
	// least this part of the rest that the pace of the other partitions keeps.
	leastPace = 0.5
)

// slowForLong slows the disk of the node that leads the most partitions of the probes.
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

// paceOf is the pace between two counts.
type paceOf struct{ from, to availability.Count }

// lost describes how a later pace of the partitions that a server led is too low, compared with the
// pace of the partitions of which the server has no replica. The text is empty if the pace is not
// too low.
func (p paceOf) lost(later paceOf, led, others []int) string {
	kept := func(partitions []int) float64 {
		before := availability.Rate(p.from, p.to, partitions)
		if before == 0 {
			return 1 // the list is empty, or its partitions did not answer before
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

// mostOf returns the most frequent element of a list.
func mostOf(list []int) (most int) {
	times := make(map[int]int)
	for _, x := range list {
		if times[x]++; times[x] > times[most] || times[most] == 0 {
			most = x
		}
	}
	return most
}

// ledBy returns the partitions that a server leads.
func (p *placement) ledBy(server int) (led []int) {
	for partition, leader := range p.leader {
		if leader == server {
			led = append(led, partition)
		}
	}
	return led
}

// without returns the partitions of which a server has no replica.
func (p *placement) without(server int) (others []int) {
	for partition, voters := range p.voters {
		if !slices.Contains(voters, server) {
			others = append(others, partition)
		}
	}
	return others
}

// ledNow describes how many of the probes' partitions a server leads at present.
func (w *world) ledNow(server int) string {
	now, err := w.where(context.Background())
	if err != nil {
		return fmt.Sprintf("an unknown number of partitions (%v)", err)
	}
	return fmt.Sprintf("%d partitions", len(now.ledBy(server)))
}
