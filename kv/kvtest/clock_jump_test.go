package kvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// bound is the maximum clock offset of the clocks of these clusters.
const bound = hlc.DefaultMaxOffset

// A clock that jumps beyond the bound is handed on to none, not for a moment: neither versions nor
// what a session learns of it.
func TestJumpBeyondTheBoundIsNotHandedOn(t *testing.T) {
	for _, off := range []time.Duration{2 * bound, 2 * time.Second, time.Hour, -2 * bound,
		-2 * time.Second, -time.Hour} {
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
				for last := (hlc.Timestamp{}); time.Since(jumped) < 10*time.Second; time.Sleep(
					20 * time.Millisecond) {
					at, err := ks.Put(t.Context(), []byte("k"), []byte("3"))
					if err != nil {
						t.Fatal(err)
					}
					// A leader may be ahead by the bound for its clock, and by another for its
					// election.
					if truth := time.Now().UnixNano(); at.Wall > truth+2*int64(bound) ||
						at.Wall < jumped.UnixNano()-2*int64(bound) {
						t.Fatalf("%v after the jump a version is %v off", time.Since(jumped),
							time.Duration(at.Wall-truth))
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
				eventually(t, "the node with the mended clock to serve",
					func() bool { ready, _ := c.Process(bad).Ready(); return ready })
				put(t, ks, "k", "4")
				mustHold(t, ks, "k", "4")
				equal(t, c)
			})
		})
	}
}

// A step within the bound can take a clock beyond it from another one, while a third between them
// agrees with both. What is committed by it is not below what was acknowledged by the other.
func TestStepAwayFromOneOfTwo(t *testing.T) {
	for name, d := range map[string]time.Duration{"back": 1, "forward": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				client := c.Client(t)
				// Each on a node of its own, and used by a client of its own, which knows nothing
				// of the others.
				var spread []*kv.Keyspace
				for _, name := range []string{"a", "b", "c"} {
					create(t, client, name, kv.Range(), kv.Replicas(1), kv.CommitWait())
					spread = append(spread, c.Client(t).Keyspace(name))
				}
				// whose hosts compare their clocks
				create(t, client, "shared", kv.Range(), kv.Replicas(3))
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
								t.Fatalf("%v after the step keyspace %s commits at %v, after %v "+
									"was acknowledged", time.Since(began), ks.Name(), at, last)
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

// A jump within the bound disturbs nothing: no request fails (those that come before it is noticed
// are tried again), no leader hands over.
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
			t.Errorf("the leader was replaced: leads %v in term %d, before in term %d", leads, now,
				term)
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

// A server that is alone has no peer to ask and none to disagree with: it goes by its clock, and
// its versions never go back.
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
				for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(
					10 * time.Millisecond) {
					if ready, why := c.Process(3).Ready(); ready {
						t.Fatalf("ready after %v: %s", time.Since(began), why)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					at, err := single.Put(ctx, []byte(time.Since(began).String()), []byte("v"))
					cancel()
					if truth := time.Now(); err == nil &&
						(at.Wall > truth.Add(2*bound).UnixNano() ||
							at.Wall < truth.Add(-2*bound).UnixNano()) {
						t.Fatalf("%v after the start a version is %v off", time.Since(began),
							time.Duration(at.Wall-truth.UnixNano()))
					}
				}
				c.Clock(3).SetOffset(0)
				ready(t, c)
			})
		})
	}
}
