package kvtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A leader keeps the lead while a quorum answers its heartbeats in time, however long its links
// take. A write through it takes the way to it, from there to a follower and back, and to the
// client: no more, also while the core's leader does not reach the server, and when the server's
// lease there has run out. A client that gives up earlier gets no write through.
func TestALeaderWithSlowLinksServes(t *testing.T) {
	const way = 170 * time.Millisecond
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		writer, reader := c.Client(t), c.Client(t) // client-1 and client-2
		ks := create(t, writer, "things", kv.Hash(1))
		put(t, ks, "a", "0")
		mustHold(t, reader.Keyspace("things"), "a", "0") // it is connected from here on
		leader := leaderOf(t, c)
		slowLinks(c, leader, way, "client-1", "client-2")
		for i := range 3 {
			if c.Process(i).LeadsCore() {
				c.Cut(i, leader, memnet.Stall)
			}
		}
		for began := time.Now(); time.Since(began) < 12*time.Second; {
			if took := duration(func() { put(t, ks, "a", "1") }); took > 4*way+20*time.Millisecond {
				t.Errorf("a write took %v, four ways are %v", took, 4*way)
			}
			if took := duration(func() {
				mustHold(t, reader.Keyspace("things"), "a", "1")
			}); took > 2*way+20*time.Millisecond {
				t.Errorf("a read took %v, two ways are %v", took, 2*way)
			}
		}
		hasty, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := ks.Put(hasty, []byte("a"), []byte("2")); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a write with 500ms ended with %v", err)
		}
		if now := leaderOf(t, c); now != leader {
			t.Errorf("server %d leads, it was %d", now, leader)
		}
	})
}

// A server whose messages take longer than clocks may differ cannot tell its clock from one that is
// wrong. It serves no longer, and another one leads.
func TestLinksThatAreSlowerThanClocksMayDifferMoveTheLead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(1))
		put(t, ks, "a", "0")
		leader := leaderOf(t, c)
		slowLinks(c, leader, bound+70*time.Millisecond, "client-1")
		for began := time.Now(); leaderOf(t, c) == leader; time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > 15*time.Second {
				t.Fatalf("server %d still leads", leader)
			}
		}
		put(t, ks, "a", "1")
		if took := duration(func() { put(t, ks, "a", "2") }); took > 20*time.Millisecond {
			t.Errorf("a write took %v, with a leader near a quorum and the client", took)
		}
	})
}

// slowLinks makes all links of a server slow, to and from the other servers and the clients.
func slowLinks(c *kvtest.Cluster, server int, way time.Duration, clients ...string) {
	others := clients
	for i := range c.Servers() {
		if i != server {
			others = append(others, c.Host(i))
		}
	}
	for _, other := range others {
		c.Network().SetLatency(other, c.Host(server), way)
		c.Network().SetLatency(c.Host(server), other, way)
	}
}

// duration is how long it takes.
func duration(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}
