package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// soonAfterSilence is how long, in virtual time, it may take from the start of servers that were
// killed, so many that no quorum was left, until there are leaders again. For an election timeout,
// 1 s, replicas that restarted owe a promise that they have forgotten; nothing else is waited for.
const soonAfterSilence = 1300 * time.Millisecond

// Two of three servers are killed together and start again at once.
func TestTwoKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(8))
		for round := range 5 {
			time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
			for i := range 100 {
				put(t, ks, fmt.Sprint(i), "before")
			}
			victim := leaderOf(t, c)
			other := 3 + (victim-3+1)%3
			c.KillAll(100, victim, other)
			began := time.Now()
			start(t, c, victim)
			start(t, c, other)
			for i := range 100 {
				put(t, ks, fmt.Sprint(i), "after")
			}
			if took := time.Since(began); took > soonAfterSilence {
				t.Errorf("round %d: partitions were away for %v", round, took)
			}
		}
	})
}

// The same for members of the core.
func TestTwoMembersOfTheCoreKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		for round := range 10 {
			time.Sleep(3*time.Second + time.Duration(round)*37*time.Millisecond)
			victim := coreLeaderOf(t, c)
			other := (victim + 1) % 3
			c.KillAll(100, victim, other)
			began := time.Now()
			start(t, c, victim)
			start(t, c, other)
			for coreLeaderBut(c, -1) < 0 {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took > soonAfterSilence {
				t.Errorf("round %d: the core was without a leader for %v", round, took)
			}
		}
	})
}
