package direct_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A leader that was cut off from the others lets calls wait for longer than their timeout. It is
// left after the first of them, also when others name it as better for a while, and called again
// when it answers.
func TestSilentLeaderIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		leader, others := &replica{}, [2]replica{}
		leader.serve(t, net, "s:1")
		others[0].serve(t, net, "s:2")
		others[1].serve(t, net, "s:3")
		for i := range others {
			others[i].set(func(r *replica) { r.better = "s:1" })
		}
		c := newReader(t, net, "s:2", func() []string { return []string{"s:1", "s:2", "s:3"} })
		if c.readFor(t, time.Second) > 0 || c.Server() != "s:1" {
			t.Fatalf("called: %q", c.Server())
		}
		leader.set(func(r *replica) { r.silent = true })
		if n := c.readFor(t, 14*time.Second); n != 1 || c.Server() == "s:1" || c.Server() == "" {
			t.Errorf("%d reads failed, want 1; called: %q", n, c.Server())
		}
		leader.set(func(r *replica) { r.silent = false })
		if n := c.readFor(t, 20*time.Second); n > 0 || c.Server() != "s:1" {
			t.Errorf("%d reads failed of a leader that answers again; called: %q", n, c.Server())
		}
	})
}

// A server stays that is the only one, and one at which a call with little time was not answered.
func TestSlowServerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		slow, other := &replica{}, &replica{}
		slow.serve(t, net, "s:1")
		other.serve(t, net, "s:2")
		endpoints := []string{"s:1"}
		c := newReader(t, net, "s:2", func() []string { return endpoints })
		c.readFor(t, time.Second)
		endpoints = append(endpoints, "s:2")
		slow.set(func(r *replica) { r.silent = true })
		for range 20 {
			if err := c.read(t, 500*time.Millisecond); err == nil || c.Server() != "s:1" {
				t.Fatalf("%v, called: %q", err, c.Server())
			}
		}
		endpoints = endpoints[:1]
		if err := c.read(t, 2*time.Second); err == nil {
			t.Fatal("a silent server has answered")
		}
		slow.set(func(r *replica) { r.silent = false })
		if n := c.readFor(t, time.Second); n > 0 || c.Server() != "s:1" {
			t.Errorf("%d reads failed, called: %q", n, c.Server())
		}
	})
}

// A server that knows of no leader is not called past gRPC, until it does.
func TestServerWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		r := &replica{leaderless: true}
		r.serve(t, net, "s:1")
		c := newReader(t, net, "s:1", func() []string { return []string{"s:1"} })
		if n := c.readFor(t, 5*time.Second); n > 0 || c.Server() != "" {
			t.Errorf("%d reads failed, called: %q", n, c.Server())
		}
		r.set(func(r *replica) { r.leaderless = false })
		if n := c.readFor(t, 10*time.Second); n > 0 || c.Server() != "s:1" {
			t.Errorf("%d reads failed, called: %q", n, c.Server())
		}
	})
}

// That the server which is named as better is not reached does not delay the search for another
// when the one that is called ends.
func TestUnreachableBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		first, second := &replica{better: "s:9"}, &replica{}
		stop := first.serve(t, net, "s:1")
		second.serve(t, net, "s:2")
		endpoints := []string{"s:1"}
		c := newReader(t, net, "s:2", func() []string { return endpoints })
		c.readFor(t, 2*time.Minute) // with attempts to reach the better one all along
		if c.Server() != "s:1" {
			t.Fatalf("called: %q", c.Server())
		}
		endpoints = []string{"s:1", "s:2"}
		stop()
		c.readFor(t, time.Second)
		if c.Server() != "s:2" {
			t.Errorf("called a second after a server has ended: %q", c.Server())
		}
		// Another server at the address is found when its turn comes.
		second.set(func(r *replica) { r.better = "s:9" })
		better := &replica{}
		better.serve(t, net, "s:9")
		c.readFor(t, time.Minute)
		if c.Server() != "s:9" {
			t.Errorf("called when the better one is reached: %q", c.Server())
		}
	})
}

// While no server is found calls go by gRPC, and searches never become rarer than lookMost.
func TestSearchesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		first, second := &replica{}, &replica{}
		stop := first.serve(t, net, "s:1")
		second.serve(t, net, "s:2")
		endpoints := []string{"s:1"}
		c := newReader(t, net, "s:2", func() []string { return endpoints })
		c.readFor(t, time.Second)
		stop()
		second.take()
		c.readFor(t, 5*time.Minute) // by gRPC
		if c.Server() != "" || second.take() == 0 {
			t.Fatalf("called: %q", c.Server())
		}
		endpoints = []string{"s:1", "s:2"}
		c.readFor(t, time.Minute)
		if c.Server() != "s:2" {
			t.Errorf("called: %q", c.Server())
		}
	})
}
