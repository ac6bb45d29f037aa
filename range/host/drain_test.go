package host

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// drain drains a host within 10 s, and says how long that took. on, if not nil, is called instead
// of each hand-over, on a goroutine of its own.
func (c *cluster) drain(n *node, on func(*Group)) (left int, took time.Duration) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	left = n.host.Drain(ctx, func(g *Group, term uint64, to keys.ReplicaID) {
		if on != nil {
			go on(g)
			return
		}
		g.TransferLeader(term, to)
	})
	return left, time.Since(began)
}

// TestDrainEnds: a host hands over what it leads, and does not wait for what cannot be, or need not
// be any more.
func TestDrainEnds(t *testing.T) {
	type drained func(t *testing.T, c *cluster, leader *node) (left int, took time.Duration)
	for name, test := range map[string]drained{
		"others are there": func(t *testing.T, c *cluster, leader *node) (int, time.Duration) {
			return c.drain(leader, nil)
		},
		"the replica is removed meanwhile": func(t *testing.T, c *cluster, leader *node) (int,
			time.Duration) {
			return c.drain(leader, func(g *Group) { leader.host.Remove(g) })
		},
		"the replica fails meanwhile": func(t *testing.T, c *cluster, leader *node) (int,
			time.Duration) {
			return c.drain(leader, func(g *Group) { g.failFrom(context.Canceled) })
		},
		"a peer is down and it is not known yet": func(t *testing.T, c *cluster, leader *node) (int,
			time.Duration) {
			c.stop(leader.id%3 + 1)
			return c.drain(leader, nil)
		},
		"all peers are down": func(t *testing.T, c *cluster, leader *node) (int, time.Duration) {
			for id := range c.hosts {
				if id != leader.id {
					c.stop(id)
				}
			}
			left, took := c.drain(leader, nil)
			if left == 0 {
				t.Error("handed over to no replica")
			}
			return 0, took
		},
		"all leave": func(t *testing.T, c *cluster, leader *node) (int, time.Duration) {
			for _, n := range c.hosts {
				if n != leader {
					go c.drain(n, nil)
				}
			}
			_, took := c.drain(leader, nil)
			return 0, took
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				c.create(100, 101, 102, 103)
				c.propose(101, "a")
				c.propose(100, "a")
				leader, _ := c.awaitLeader(100)
				left, took := test(t, c, leader)
				if left != 0 || took > 3*time.Second {
					t.Errorf("%d left after %s", left, took)
				}
				t.Log(took)
			})
		})
	}
}
