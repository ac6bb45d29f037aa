package kvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// bound is the maximum clock offset of the clocks of these clusters.
const bound = hlc.DefaultMaxOffset

// A clock that jumps beyond the bound is given to nobody, not for a moment: neither versions nor what a session learns of it.
func TestJumpBeyondTheBoundIsNotHandedOn(t *testing.T) {
	for _, off := range []time.Duration{2 * bound, 2 * time.Second, time.Hour, -2 * bound, -2 * time.Second, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				client := c.Client(t)
				ks := create(t, client, "things", kv.Range())
				put(t, ks, "k", "1")
				bad := leaderOf(t, c)
				put(t, ks, "k", "2")
				c.Clock(bad).SetOffset(off)
				jumped := time.Now()
				for last := (hlc.Timestamp{}); time.Since(jumped) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
					at, err := ks.Put(t.Context(), []byte("k"), []byte("3"))
					if err != nil {
						t.Fatal(err)
					}
					// A leader may be ahead by the bound for its clock, and by another for its election.
					if truth := time.Now().UnixNano(); at.Wall > truth+2*int64(bound) || at.Wall < jumped.UnixNano()-2*int64(bound) {
						t.Fatalf("%v after the jump a version is %v off", time.Since(jumped), time.Duration(at.Wall-truth))
					}
					if !last.Less(at) {
						t.Fatalf("version %v after %v", at, last)
					}
					last = at
				}
				if ready, _ := c.Process(bad).Ready(); ready {
					t.Error("the node whose clock is wrong is ready")
				}
				if leads, _ := leading(c, bad); leads {
					t.Error("it leads")
				}
				c.Clock(bad).SetOffset(0)
				eventually(t, "the node with the mended clock to serve", func() bool { ready, _ := c.Process(bad).Ready(); return ready })
				put(t, ks, "k", "4")
				mustHold(t, ks, "k", "4")
				equal(t, c)
			})
		})
	}
}

// A step within the bound can take a clock beyond it from another one, while a third between them agrees with both. What is committed by it is not
// below what was acknowledged by the other.
func TestStepAwayFromOneOfTwo(t *testing.T) {
	for name, d := range map[string]time.Duration{"back": 1, "forward": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				client := c.Client(t)
				// Each on a node of its own, and used by a client of its own, which knows nothing of the others.
				var spread []*kv.Keyspace
				for _, name := range []string{"a", "b", "c"} {
					create(t, client, name, kv.Range(), kv.Replicas(1), kv.CommitWait())
					spread = append(spread, c.Client(t).Keyspace(name))
				}
				create(t, client, "shared", kv.Range(), kv.Replicas(3)) // whose hosts compare their clocks
				c.Clock(3).SetOffset(-120 * time.Millisecond * d)
				c.Clock(4).SetOffset(-120 * time.Millisecond * d)
				c.Clock(5).SetOffset(80 * time.Millisecond * d)
				time.Sleep(10 * time.Second)
				ready(t, c)
				for _, ks := range spread {
					put(t, ks, "k", "v")
				}
				c.Clock(4).SetOffset(-339 * time.Millisecond * d)
				last := hlc.Timestamp{}
				acknowledged := 0
				for began := time.Now(); time.Since(began) < 20*time.Second; {
					for _, i := range []int{0, 1, 2, 0, 2, 1} { // each after each of the others
						ks := spread[i]
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
						at, err := ks.Put(ctx, []byte("k"), []byte("v"))
						cancel()
						if err == nil {
							acknowledged++
							if !last.Less(at) {
								t.Fatalf("%v after the step keyspace %s commits at %v, after %v was acknowledged", time.Since(began), ks.Name(), at, last)
							}
							last = at
						}
					}
				}
				if acknowledged == 0 {
					t.Error("nothing was committed")
				}
				if ready, _ := c.Process(4).Ready(); ready {
					t.Error("the node whose clock was set is ready")
				}
				if ready, why := c.Process(3).Ready(); !ready {
					t.Errorf("the node between the two others is not ready: %s", why)
				}
				c.Clock(4).SetOffset(0)
				ready(t, c)
			})
		})
	}
}

// behindSlowWays is a cluster with a bound of 50 ms in which server 3 sees the clocks of servers 4 and 5 late, and that of 5 beyond the bound. It serves all the same.
func behindSlowWays(t *testing.T) *kvtest.Cluster {
	const limit = 50 * time.Millisecond
	c := six(t, func(_ int, sc *embedded.ServerConfig) { sc.MaxOffset = limit })
	create(t, c.Client(t), "things", kv.Range(), kv.Replicas(3))
	for other, way := range map[int]time.Duration{4: limit * 4 / 5, 5: limit * 6 / 5} {
		c.Network().SetLatency(c.Host(3), c.Host(other), way)
		c.Network().SetLatency(c.Host(other), c.Host(3), way)
	}
	time.Sleep(20 * time.Second)
	ready(t, c)
	return c
}

// Who goes on although slow ways make the clocks of others look slow does so after a restart, too, and after a jump that was right.
func TestSlowWaysLookLikeSlowClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := behindSlowWays(t)
		if err := c.Stop(3); err != nil {
			t.Fatal(err)
		}
		start(t, c, 3)
		ready(t, c)
		c.Clock(3).Jump(time.Second)
		time.Sleep(time.Second)
		if ready, _ := c.Process(3).Ready(); ready {
			t.Error("ready with a clock that is wrong")
		}
		c.Clock(3).SetOffset(0)
		ready(t, c)
	})
}

// A step that looks as if it took a clock beyond the bound, because of a slow way, is believed in the end: whoever really is behind has stopped by then.
func TestStepThatSeemsTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		create(t, c.Client(t), "things", kv.Range(), kv.Replicas(3))
		c.Clock(4).SetOffset(-50 * time.Millisecond)
		c.Clock(5).SetOffset(-100 * time.Millisecond)
		c.Network().SetLatency(c.Host(5), c.Host(3), 60*time.Millisecond)
		time.Sleep(20 * time.Second)
		ready(t, c)
		c.Clock(3).SetOffset(100 * time.Millisecond)
		time.Sleep(5 * time.Second)
		if ready, _ := c.Process(3).Ready(); ready {
			t.Error("a step that takes the clock away from one of two is believed at once")
		}
		ready(t, c)
	})
}

// A machine that stood still for longer than measurements count is confirmed by peers that always look slow.
func TestSuspendedBehindSlowWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := behindSlowWays(t)
		for _, other := range []int{4, 5} {
			c.Network().CutBoth(c.Host(3), c.Host(other), memnet.Stall)
		}
		time.Sleep(10 * time.Second)
		c.Clock(3).Jump(time.Second) // nothing is measured
		time.Sleep(time.Second)
		c.Clock(3).SetOffset(0)
		c.HealAll()
		ready(t, c)
	})
}

// A jump within the bound disturbs nobody: no request fails (those that come before it is noticed are tried again), nobody hands over.
func TestJumpWithinTheBoundDisturbsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		leader := leaderOf(t, c)
		_, term := leading(c, leader)
		for i := range 40 {
			off := bound * 2 / 5
			if i%2 == 1 {
				off = -off
			}
			c.Clock(leader).SetOffset(off)
			for range 10 {
				put(t, ks, "k", "2")
				if ready, why := c.Process(leader).Ready(); !ready {
					t.Fatalf("the leader is not ready: %s", why)
				}
				time.Sleep(25 * time.Millisecond)
			}
		}
		if leads, now := leading(c, leader); !leads || now != term {
			t.Errorf("the leader was replaced: leads %v in term %d, before in term %d", leads, now, term)
		}
	})
}

// A clock that jumped, and is right by the clocks of the others, is believed again: it was wrong
// before, or the machine was suspended.
func TestJumpThatPeersConfirm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		for node := 3; node < 6; node++ {
			c.Clock(node).Jump(time.Minute)
		}
		put(t, ks, "k", "2")
		eventually(t, "all nodes to serve by the new time", func() bool {
			for node := 3; node < 6; node++ {
				if ready, _ := c.Process(node).Ready(); !ready {
					return false
				}
			}
			at, err := ks.Put(t.Context(), []byte("k"), []byte("3"))
			return err == nil && at.Wall > time.Now().Add(time.Minute-bound).UnixNano()
		})
		equal(t, c)
	})
}

// A jump that nobody is there to confirm is not believed, as long as that may be.
func TestJumpWhileCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Range(), kv.Replicas(3))
		alone := create(t, c.Client(t), "single", kv.Hash(3), kv.Replicas(1))
		put(t, ks, "k", "1")
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			put(t, alone, key, "1")
		}
		const node = 3
		for other := range c.Servers() {
			if other != node {
				c.Network().CutBoth(c.Host(node), c.Host(other), memnet.Stall)
			}
		}
		time.Sleep(5 * time.Second)
		c.Clock(node).Jump(10 * time.Second)
		time.Sleep(time.Minute)
		if ready, why := c.Process(node).Ready(); ready {
			t.Errorf("ready: %s", why)
		}
		c.HealAll()
		time.Sleep(10 * time.Second)
		if ready, why := c.Process(node).Ready(); ready {
			t.Errorf("its peers, which it reaches, do not confirm its clock; ready: %s", why)
		}
		c.Clock(node).SetOffset(0)
		ready(t, c)
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			put(t, alone, key, "2")
		}
	})
}

// A server that is alone has nobody to ask and nobody to disagree with: it goes by its clock, and its versions never go back.
func TestJumpOfTheOnlyServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 1, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range(), kv.Replicas(1))
		last := hlc.Timestamp{}
		for _, jump := range []time.Duration{time.Hour, -time.Minute, -time.Hour, time.Second} {
			c.Clock(0).Jump(jump)
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				at, err := ks.Put(ctx, []byte("k"), []byte("v"))
				cancel()
				if err != nil {
					t.Fatalf("after a jump by %v: %v", jump, err)
				}
				if !last.Less(at) {
					t.Fatalf("version %v after %v", at, last)
				}
				last = at
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
}

// A node that starts with a wrong clock does not serve by it, not even at first.
func TestStartWithAWrongClock(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Second, -10 * time.Second} {
		t.Run(off.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				client := c.Client(t)
				ks := create(t, client, "things", kv.Range())
				single := create(t, client, "single", kv.Hash(6), kv.Replicas(1))
				put(t, ks, "k", "1")
				if err := c.Stop(3); err != nil {
					t.Fatal(err)
				}
				c.Clock(3).SetOffset(off)
				start(t, c, 3)
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
					if ready, why := c.Process(3).Ready(); ready {
						t.Fatalf("ready after %v: %s", time.Since(began), why)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					at, err := single.Put(ctx, []byte(time.Since(began).String()), []byte("v"))
					cancel()
					if truth := time.Now(); err == nil && (at.Wall > truth.Add(2*bound).UnixNano() || at.Wall < truth.Add(-2*bound).UnixNano()) {
						t.Fatalf("%v after the start a version is %v off", time.Since(began), time.Duration(at.Wall-truth.UnixNano()))
					}
				}
				c.Clock(3).SetOffset(0)
				ready(t, c)
			})
		})
	}
}
