package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// fasterThanSilence is how long, in virtual time, the partitions of a process that was killed may
// be without a leader: what their followers have promised it at most, 900 ms, a tick, and what the
// client waits before it asks again. Without a word of the process's end they wait for an election
// timeout of 1 s and for a random time of up to another one.
const fasterThanSilence = 1100 * time.Millisecond

// Followers of a leader whose process is gone do not wait for a silence to end.
func TestLeaderKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(8))
		for round := range 5 {
			// All leaders know that they lead, and clients know them.
			time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
			for i := range 100 {
				put(t, ks, fmt.Sprint(i), "before")
			}
			victim := leaderOf(t, c)
			began := time.Now()
			c.Kill(victim, 100)
			for i := range 100 {
				put(t, ks, fmt.Sprint(i), "after")
			}
			if took := time.Since(began); took > fasterThanSilence {
				t.Errorf("round %d: the partitions of server %d were away for %v", round, victim, took)
			}
			start(t, c, victim)
		}
	})
}

// The same for the leader of the core: what it alone can do is done again as soon.
func TestCoreLeaderKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		client := c.Client(t)
		for round := range 5 {
			time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
			create(t, client, fmt.Sprintf("before-%d", round), kv.Range())
			victim := coreLeaderOf(t, c)
			began := time.Now()
			c.Kill(victim, 100)
			for coreLeaderBut(c, victim) < 0 {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took > fasterThanSilence {
				t.Errorf("round %d: the core was without a leader for %v", round, took)
			}
			start(t, c, victim)
		}
	})
}

// coreLeaderOf is the server that leads the core.
func coreLeaderOf(t *testing.T, c *kvtest.Cluster) int {
	t.Helper()
	leader := coreLeaderBut(c, -1)
	if leader < 0 {
		t.Fatal("the core has no leader")
	}
	return leader
}

// coreLeaderBut is a server that leads the core, as it says itself, and is not the one given; -1 if
// none does.
func coreLeaderBut(c *kvtest.Cluster, but int) int {
	for i := range c.Servers() {
		if p := c.Process(i); i != but && p != nil && p.CoreLeader() == c.Endpoints()[i] {
			return i
		}
	}
	return -1
}
