package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/lifecycle"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func TestPartitionsAreCreatedLedAndServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		for i, p := range partitions {
			c.mustPut(p, fmt.Sprint("key", i), fmt.Sprint("value", i))
		}
		for i, p := range partitions {
			c.mustGet(p, fmt.Sprint("key", i), fmt.Sprint("value", i))
		}
		for _, m := range c.nodes {
			if ready, why := m.Ready(); !ready {
				t.Errorf("node %d is not ready: %s", m.id, why)
			}
			if addr, ok := m.Resolve(2); !ok || addr != "node-2:1" {
				t.Errorf("node 2 is at %q, %v", addr, ok)
			}
		}
	})
}

func TestANodeRestartsWithoutTheCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 9)
		for i, p := range partitions {
			c.mustPut(p, "k", fmt.Sprint(i))
		}
		c.core.setDown(true)
		for _, m := range c.nodes {
			m.crash()
		}
		for _, m := range c.nodes {
			m.start()
		}
		for i, p := range partitions {
			c.mustGet(p, "k", fmt.Sprint(i))
			c.mustPut(p, "k", fmt.Sprint(i, "again"))
		}
		if addr, ok := c.nodes[1].Resolve(3); !ok || addr != "node-3:1" {
			t.Errorf("after a restart without the core, node 3 is at %q, %v", addr, ok)
		}
		c.await("all nodes are ready", 20*time.Second, func() bool {
			for _, m := range c.nodes {
				if ready, _ := m.Ready(); !ready {
					return false
				}
			}
			return true
		})
	})
}

func TestLeadersReturnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("leaders are spread", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		c.await("all groups sleep", 30*time.Second, func() bool { return true })
		time.Sleep(20 * time.Second)
		c.nodes[1].crash()
		c.await("the other nodes lead everything", 10*time.Second, func() bool {
			for _, p := range partitions {
				if node, _ := c.believedLeader(p.Id); node == 0 {
					return false
				}
			}
			return true
		})
		for _, p := range partitions {
			c.mustPut(p, "k", "v")
		}
		c.nodes[1].start()
		c.await("leaders are where they are preferred again", 60*time.Second,
			func() bool { return c.asPreferred(partitions) })
		for _, p := range partitions {
			c.mustGet(p, "k", "v")
		}
		// And from then on nothing is done about it any more.
		before := make(map[uint64]uint64)
		for _, p := range partitions {
			_, before[p.Id] = c.believedLeader(p.Id)
		}
		time.Sleep(5 * time.Minute)
		for _, p := range partitions {
			if _, term := c.believedLeader(p.Id); term != before[p.Id] {
				t.Errorf("partition %d went from term %d to %d with nothing going on", p.Id,
					before[p.Id], term)
			}
		}
	})
}

func TestRemovedPartitionsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		kept, dropped := c.createHash(2, 3), c.createHash(3, 120)
		for _, p := range kept {
			c.mustPut(p, "k", "v")
		}
		c.mustPut(dropped[0], "k", "v")
		// Node 3 is away, and hears of it only by what is missing.
		c.nodes[3].crash()
		u := &clusterpb.TableUpdate{RemovedKeyspaces: []uint32{3}}
		for _, p := range dropped {
			u.RemovedPartitions = append(u.RemovedPartitions, p.Id)
		}
		c.core.update(u)
		c.core.compact()
		c.nodes[3].start()
		c.await("only the kept partitions are left", 60*time.Second, func() bool {
			for _, m := range c.nodes {
				if len(m.replicas.All()) != len(kept) {
					return false
				}
			}
			return true
		})
		for _, p := range kept {
			c.mustGet(p, "k", "v")
		}
		for _, m := range c.nodes {
			c.awaitServing(m)
			q := get(dropped[0], 1, "k")
			code := c.ask(m.id, q)[q.Id].GetError().GetCode()
			if code != kvpb.ErrorCode_PARTITION_NOT_FOUND {
				t.Errorf("node %d says %s of a dropped partition", m.id, code)
			}
			m.crash()
			m.start()
			if n := len(m.replicas.All()); n != len(kept) {
				t.Errorf("node %d has %d replicas after a restart, want %d", m.id, n, len(kept))
			}
			marked, err := lifecycle.ReadRemovals(m.config.Log)
			if err != nil || len(marked) != 0 {
				t.Errorf("node %d: %d marks are left, %v", m.id, len(marked), err)
			}
			// Ids never come back.
			p := dropped[1]
			id, err := m.lifecycle.IdentityOf(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.host.Log().Create(id); err == nil {
				t.Errorf("node %d created a removed replica again", m.id)
			}
		}
	})
}

func TestAnInterruptedRemovalIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 4)
		for _, p := range partitions {
			c.mustPut(p, "k", "v")
		}
		m := c.nodes[1]
		h := m.replicas.Get(keys.PartitionID(partitions[0].Id))
		if err := m.lifecycle.MarkRemoval([]raftlog.Identity{h.Identity}); err != nil {
			t.Fatal(err)
		}
		c.core.setDown(true)
		m.crash()
		m.start()
		if m.replicas.Get(h.ID) != nil {
			t.Error("a replica whose removal had begun was opened")
		}
		if n := len(m.replicas.All()); n != len(partitions)-1 {
			t.Errorf("%d replicas are open", n)
		}
		ids, err := m.host.Log().Identities()
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id.Removed != (id.Group == h.ID) {
				t.Errorf("replica of %s: removed %v", id.Group, id.Removed)
			}
		}
	})
}

func TestNothingIsRemovedWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 5)
		c.await("replicas exist", 5*time.Second,
			func() bool { return len(c.nodes[1].replicas.All()) == 5 })
		n := c.nodes[1].Node
		for what, u := range map[string]*clusterpb.TableUpdate{
			"another cluster": {Cluster: 0xbad, Revision: 99, Reset_: true,
				Complete: true},
			"an older table": {Cluster: testCluster, Revision: 1, Reset_: true,
				Complete: true},
			"a reset that is not complete": {Cluster: testCluster, Revision: 99, Reset_: true},
		} {
			f := &table.Follower{Cluster: testCluster, Log: n.config.Log, Table: n.tables,
				Listener: &n.lifecycle.Reconciler, Logger: n.log, Revision: n.metrics.revision}
			err := f.Take(u)
			if err == nil && u.Complete {
				t.Errorf("%s: taken", what)
			}
			time.Sleep(5 * time.Second)
			if got := len(n.replicas.All()); got != len(partitions) {
				t.Errorf("%s: %d replicas are left of %d", what, got, len(partitions))
			}
			if len(n.Table().Partitions()) != len(partitions) {
				t.Errorf("%s: the table has %d partitions", what, len(n.Table().Partitions()))
			}
		}
		// Silence and errors.
		for range 10 {
			c.core.setDown(true)
			time.Sleep(7 * time.Second)
			c.core.setDown(false)
			time.Sleep(3 * time.Second)
		}
		if got := len(n.replicas.All()); got != len(partitions) {
			t.Errorf("%d replicas are left of %d", got, len(partitions))
		}
		more := c.createHash(3, 5)
		c.await("the stream goes on", 20*time.Second, func() bool { return c.asPreferred(more) })
	})
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 6)
		for i, p := range partitions {
			for k := range i + 1 {
				c.mustPut(p, fmt.Sprint("key", k), "v")
			}
		}
		reported := func() bool {
			for i, p := range partitions {
				r, by := c.core.report(p.Id)
				leader, term := c.believedLeader(p.Id)
				if by != leader || r.GetTerm() != term || r.GetLiveKeys() != uint64(i+1) ||
					r.GetSizeBytes() == 0 {
					return false
				}
			}
			return true
		}
		c.await("the core knows leaders and sizes", 10*time.Second, reported)
		c.await("leaders are spread", 30*time.Second,
			func() bool { return c.asPreferred(partitions) })
		c.await("the core knows how many replicas and leaders there are", 10*time.Second,
			func() bool {
				c.core.mu.Lock()
				defer c.core.mu.Unlock()
				s := c.core.stats[1]
				return s.GetReplicas() == 6 && s.GetLeaders() == 2
			})
		c.core.mu.Lock()
		// A new leader of the core knows nothing.
		clear(c.core.reports)
		clear(c.core.reporter)
		for id := range c.nodes {
			c.core.wantFull[id] = true
		}
		c.core.mu.Unlock()
		c.await("everything is reported anew", 10*time.Second, reported)
		// Idle partitions are not reported.
		time.Sleep(time.Minute)
		c.core.mu.Lock()
		clear(c.core.reports)
		c.core.mu.Unlock()
		time.Sleep(time.Minute)
		c.core.mu.Lock()
		if n := len(c.core.reports); n != 0 {
			t.Errorf("%d idle partitions were reported", n)
		}
		c.core.mu.Unlock()
		// A leadership that moves is reported by the one, and given up by the other.
		c.nodes[2].crash()
		clearReports := func() bool {
			for _, p := range partitions {
				if _, by := c.core.report(p.Id); by == 2 {
					return false
				}
			}
			return true
		}
		for _, p := range partitions {
			c.mustPut(p, "again", "v")
		}
		c.await("no partition is thought to be led by the dead node", 20*time.Second, clearReports)
	})
}

// The core is told of a clock that is wrong, and not of one that has not been compared yet because
// its server has just started.
func TestWhatIsReportedOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		for _, p := range c.createHash(2, 3) {
			c.mustPut(p, "k", "v")
		}
		reported := func() *clusterpb.NodeStats {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			return c.core.stats[1]
		}
		c.await("the clock is reported to be right", 10*time.Second,
			func() bool { s := reported(); return s != nil && !s.GetClockUnhealthy() })
		m := c.nodes[1]
		m.crash()
		c.core.mu.Lock()
		delete(c.core.stats, 1)
		c.core.mu.Unlock()
		// so that the quarantine lasts for longer than until the first heartbeat
		c.network.setCut(1, true)
		m.start()
		c.await("the first heartbeat after the restart", 10*time.Second,
			func() bool { return reported() != nil })
		if ready, _ := m.Ready(); ready || m.health.Fit() {
			t.Fatal("it serves before its clock was compared")
		}
		if reported().GetClockUnhealthy() {
			t.Error("a clock that was not compared yet is reported to be wrong")
		}
		c.network.setCut(1, false)
		c.awaitServing(m)

		for _, of := range []struct {
			offset time.Duration
			wrong  bool
		}{{10 * time.Second, true}, {0, false}} {
			m.physical.shift(of.offset)
			c.await(fmt.Sprintf("a clock that is off by %s is reported", of.offset), time.Minute,
				func() bool { return reported().GetClockUnhealthy() == of.wrong })
		}
	})
}

// A server that starts while none of its peers reaches it may be reached by clients: they are not
// given a time that no peer has confirmed.
func TestNoTimeIsToldBeforeAPeerIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		for _, p := range c.createHash(2, 3) {
			c.mustPut(p, "k", "v")
		}
		m := c.nodes[1]
		m.crash()
		c.network.setCut(1, true)
		m.physical.shift(-2 * time.Second)
		m.start()
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
			q := &kvpb.Request{Id: 1, Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
			if a := c.ask(1, q)[1]; a.GetError().GetCode() != kvpb.ErrorCode_CLOCK_SKEW ||
				a.GetNow() != nil {
				t.Fatalf("%v after its start it answers %v", time.Since(began), a)
			}
		}
		m.physical.shift(0)
		c.network.setCut(1, false)
		c.awaitServing(m)
	})
}

// What the peers' clocks have shown in time counts, also when the verdict on that is not spoken
// yet: with short ticks a start is over before it is.
func TestAWrongClockIsNotBelievedAfterAStart(t *testing.T) {
	for _, tick := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond} {
		t.Run(tick.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, func(c *Config) { c.Tick = tick })
				for _, p := range c.createHash(2, 3) {
					c.mustPut(p, "k", "v")
				}
				bad, other := c.nodes[1], c.nodes[2]
				bad.crash()
				other.crash()
				bad.physical.shift(2 * time.Second)
				other.start()
				bad.start()
				for began := time.Now(); time.Since(began) < 10*time.Second; {
					synctest.Wait()
					if bad.health.Fit() {
						t.Fatalf("it serves %v after its start, with a wrong clock",
							time.Since(began))
					}
					time.Sleep(5 * time.Millisecond)
				}
				bad.physical.shift(0)
				c.awaitServing(bad)
			})
		})
	}
}

func TestAWrongClockStopsServing(t *testing.T) {
	for name, offset := range map[string]time.Duration{"fast": 10 * time.Second,
		"slow": -10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, nil)
				partitions := c.createHash(2, 6)
				for _, p := range partitions {
					c.mustPut(p, "k", "v")
				}
				time.Sleep(5 * time.Second)
				bad := c.nodes[1]
				bad.physical.shift(offset)
				c.await("the node refuses", 15*time.Second, func() bool {
					q := &kvpb.Request{Id: 1, Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
					return c.ask(1, q)[1].GetError().GetCode() == kvpb.ErrorCode_CLOCK_SKEW
				})
				if ready, why := bad.Ready(); ready || why == "" {
					t.Errorf("ready %v, %q", ready, why)
				}
				answer := c.ask(1, &kvpb.Request{Id: 2,
					Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}})[2]
				if answer.GetError() == nil || answer.GetNow() != nil {
					t.Errorf("the refusal hands the wrong clock on to the client's session: %v",
						answer)
				}
				c.await("it leads nothing", 15*time.Second,
					func() bool { return bad.leaders.Count() == 0 })
				for _, p := range partitions {
					c.mustGet(p, "k", "v")
				}
				// And it is given nothing back.
				time.Sleep(2 * time.Minute)
				if n := bad.leaders.Count(); n != 0 {
					t.Errorf("it leads %d groups with a wrong clock", n)
				}
				for _, id := range []uint64{2, 3} {
					if ready, why := c.nodes[id].Ready(); !ready {
						t.Errorf("node %d, whose clock is right: %s", id, why)
					}
				}
				bad.physical.shift(0)
				c.await("it answers again", time.Minute, func() bool {
					answer := c.ask(1, &kvpb.Request{Id: 3,
						Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}})[3]
					ahead := time.Duration(int64(answer.GetNow().GetWall()) - bad.physical.Now())
					if answer.GetError() == nil && ahead > 2*hlc.DefaultMaxOffset {
						t.Fatalf("it answers with a timestamp from when its clock was wrong, %v "+
							"ahead", ahead)
					}
					return answer.GetError() == nil
				})
				c.await("it serves and leads again", 3*time.Minute,
					func() bool { return c.asPreferred(partitions) })
				for _, p := range partitions {
					c.mustPut(p, "k", "w")
				}
			})
		})
	}
}
