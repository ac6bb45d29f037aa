// Package spread distributes units of work over nodes. Each node gets a few units at a time. A unit
// goes to a node near its data if such a node has capacity. After a failure, the unit goes to
// another node.
package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Config says how units are distributed. Nodes, Do and Done must be set.
type Config struct {
	// Nodes returns the nodes that can be given units now.
	Nodes func(context.Context) ([]keys.NodeID, error)
	// Near returns the preferred nodes for a unit, the best node first. If Near is nil, no node is
	// preferred.
	Near func(unit int) []keys.NodeID
	// Do has a node do a unit. Each call runs in a goroutine of its own. All calls end before Run
	// returns.
	Do func(ctx context.Context, node keys.NodeID, unit int) error
	// Done is called by the goroutine of Run when a unit is done. If it returns an error, Run ends
	// with that error.
	Done func(unit int) error
	// Failed is called by the goroutine of Run for each failed attempt. It may be nil.
	Failed func(node keys.NodeID, unit int, err error)
	// Final reports whether an error of Do makes further attempts useless. If Final is nil, no error
	// does.
	Final func(error) bool
	// PerNode is the number of units that a node does at the same time. The default is 2.
	PerNode int
	// Attempts is the number of attempts at a unit before Run fails. The default is 10.
	Attempts int
	// RetryPause is the time for which a node gets no unit after a failure. The default is 3 s.
	RetryPause time.Duration
	// Patience is the time for which all nodes may refuse units before Run fails. The default is 1
	// min.
	Patience time.Duration
}

// ErrNoNode: no data node could be given a unit for Config.Patience.
var ErrNoNode = errors.New("no data node that is alive takes a part of the work")

const (
	// nodesAgain is the interval at which the list of nodes is read again.
	nodesAgain = 5 * time.Second
	// window is the number of waiting units that are searched for one near a node.
	window = 1000
)

func (c *Config) ensureDefaults() {
	if c.Near == nil {
		c.Near = func(int) []keys.NodeID { return nil }
	}
	if c.Failed == nil {
		c.Failed = func(keys.NodeID, int, error) {}
	}
	if c.Final == nil {
		c.Final = func(error) bool { return false }
	}
	if c.PerNode <= 0 {
		c.PerNode = 2
	}
	if c.Attempts <= 0 {
		c.Attempts = 10
	}
	if c.RetryPause <= 0 {
		c.RetryPause = 3 * time.Second
	}
	if c.Patience <= 0 {
		c.Patience = time.Minute
	}
}

// Run has all units done and then returns. It ends early with the first final error, or with the
// error of a unit that has failed Config.Attempts times.
func Run(ctx context.Context, c Config, units []int) (err error) {
	c.ensureDefaults()
	ctx, cancel := context.WithCancel(ctx)
	s := &spread{Config: c, ended: make(chan ending), nodes: make(map[keys.NodeID]*state)}
	defer func() {
		cancel()
		for ; s.open > 0; s.open-- {
			<-s.ended
		}
	}()
	for _, u := range units {
		s.waiting = append(s.waiting, &pending{unit: u})
	}
	tick := time.NewTicker(min(nodesAgain, c.RetryPause))
	defer tick.Stop()
	if s.alive, err = c.Nodes(ctx); err != nil {
		return err
	}
	asked, busy := time.Now(), time.Now()
	for len(s.waiting) > 0 || s.open > 0 {
		s.give(ctx)
		if s.open > 0 {
			busy = time.Now()
		} else if time.Since(busy) > c.Patience {
			return fmt.Errorf("%w: %d parts wait", ErrNoNode, len(s.waiting))
		}
		select {
		case e := <-s.ended:
			s.open--
			s.nodes[e.node].busy--
			if err := s.take(e); err != nil {
				return err
			}
		case <-tick.C:
			if time.Since(asked) >= nodesAgain {
				asked = time.Now()
				if alive, err := c.Nodes(ctx); err == nil {
					s.alive = alive
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pending is a unit that is not done.
type pending struct {
	unit, attempts int
	// last is the node on which the last attempt failed.
	last keys.NodeID
}

// state is the state of a node.
type state struct {
	busy int
	// restUntil is the time until which the node gets no unit after a failure.
	restUntil time.Time
}

// ending is the result of an attempt.
type ending struct {
	*pending
	node keys.NodeID
	err  error
}

// spread is the state of a running Run. Only the goroutine of Run uses it.
type spread struct {
	Config
	waiting []*pending
	nodes   map[keys.NodeID]*state
	alive   []keys.NodeID
	open    int
	ended   chan ending
}

// give gives waiting units to nodes that have capacity: first the units with a preferred node, then
// the others.
func (s *spread) give(ctx context.Context) {
	now := time.Now()
	for _, nearOnly := range []bool{true, false} {
		rest := s.waiting[:0]
		for i, p := range s.waiting {
			if i == window || !s.room(now) {
				rest = append(rest, s.waiting[i:]...)
				break
			}
			node := s.choose(p, now, nearOnly)
			if node == 0 {
				rest = append(rest, p)
				continue
			}
			s.nodes[node].busy++
			s.open++
			go func() { s.ended <- ending{p, node, s.Do(ctx, node, p.unit)} }()
		}
		clear(s.waiting[len(rest):])
		s.waiting = rest
	}
}

// of returns the state of a node.
func (s *spread) of(n keys.NodeID) *state {
	if s.nodes[n] == nil {
		s.nodes[n] = new(state)
	}
	return s.nodes[n]
}

// room reports whether any node can be given a unit.
func (s *spread) room(now time.Time) bool {
	return slices.ContainsFunc(s.alive, func(n keys.NodeID) bool { return s.can(n, now) })
}

func (s *spread) can(n keys.NodeID, now time.Time) bool {
	of := s.of(n)
	return of.busy < s.PerNode && !now.Before(of.restUntil)
}

// choose returns the best node with capacity for a unit, or 0 if there is none. The node on which
// the last attempt failed is chosen only if no other node has capacity.
func (s *spread) choose(p *pending, now time.Time, nearOnly bool) keys.NodeID {
	second := keys.NodeID(0)
	from := s.Near(p.unit)
	if !nearOnly {
		from = s.alive
	}
	for _, n := range from {
		switch {
		case !slices.Contains(s.alive, n) || !s.can(n, now):
		case n == p.last:
			second = n
		default:
			return n
		}
	}
	if nearOnly {
		return 0 // after a failure, another node is better than the preferred one
	}
	return second
}

// take processes the result of an attempt.
func (s *spread) take(e ending) error {
	if e.err == nil {
		return s.Done(e.unit)
	}
	if s.Final(e.err) {
		return e.err
	}
	e.attempts++
	e.last = e.node
	s.of(e.node).restUntil = time.Now().Add(s.RetryPause)
	s.Failed(e.node, e.unit, e.err)
	if e.attempts >= s.Attempts {
		return fmt.Errorf("unit %d failed %d times, the last time on node %d: %w", e.unit, e.attempts,
			e.node, e.err)
	}
	s.waiting = append(s.waiting, e.pending)
	return nil
}
