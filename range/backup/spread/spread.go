// Package spread gives units of work to nodes: some at a time to each, a unit to a node that is
// near its data if there is one with room, and to another node after a failure.
package spread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Config says how units are given out. Nodes, Do and Done must be set.
type Config struct {
	// Nodes are those that can be given units now.
	Nodes func(context.Context) ([]keys.NodeID, error)
	// Near are nodes that are better for a unit than others, the best one first; nil: none is.
	Near func(unit int) []keys.NodeID
	// Do has a node do a unit. It is called by goroutines of their own, which end before Run does.
	Do func(ctx context.Context, node keys.NodeID, unit int) error
	// Done is told, by the goroutine of Run, that a unit is done. Its error ends the Run.
	Done func(unit int) error
	// Failed is told, by the goroutine of Run, of an attempt that failed; nil: nobody is.
	Failed func(node keys.NodeID, unit int, err error)
	// Final reports an error of Do after which no attempt is of use; nil: none is.
	Final func(error) bool
	// PerNode is how many units a node has at the same time. Default 2.
	PerNode int
	// Attempts is how often a unit is given out before the Run fails. Default 10.
	Attempts int
	// RetryPause is how long a node that failed is given nothing. Default 3 s.
	RetryPause time.Duration
	// Patience is how long no node may take a unit before the Run fails. Default 1 min.
	Patience time.Duration
}

// ErrNoNode: no data node has taken a unit for Config.Patience.
var ErrNoNode = errors.New("no data node that is alive takes a part of the work")

const (
	// nodesAgain is how often the nodes are asked for.
	nodesAgain = 5 * time.Second
	// window is how many of the waiting units are looked at for one that is near a node.
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

// Run has all units done, and returns then. The first final error, or the error of a unit that has
// failed Config.Attempts times, ends it.
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
	// last is the node that failed last.
	last keys.NodeID
}

// state is what is known of a node.
type state struct {
	busy int
	// restUntil is when the node may be given a unit again after it failed.
	restUntil time.Time
}

// ending is the end of an attempt.
type ending struct {
	*pending
	node keys.NodeID
	err  error
}

// spread is a Run under way. It belongs to the goroutine of Run.
type spread struct {
	Config
	waiting []*pending
	nodes   map[keys.NodeID]*state
	alive   []keys.NodeID
	open    int
	ended   chan ending
}

// give gives waiting units to nodes that have room: first those that are near a node, then what is
// left over.
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

// of is the state of a node.
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

// choose returns the best node with room for a unit; 0: there is none now. A unit does not go to
// the node that failed it last if another one has room.
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
		return 0 // after a failure rather another node
	}
	return second
}

// take takes the end of an attempt.
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
