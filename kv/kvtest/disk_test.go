package kvtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// A disk that returns errors ends its server, with an error that says so; the others go on; and
// with a new, empty disk in its place the server joins as a node that never was.
func TestBrokenAndWipedDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		broken := leaderOf(t, c)
		before := c.Process(broken).NodeID()
		c.Disk(broken).SetBroken(true)
		put(t, ks, "k", "2")
		eventually(t, "the server with the broken disk to fail",
			func() bool { return c.Process(broken).Err() != nil })
		if err := c.Process(broken).Err(); !errors.Is(err, kvtest.ErrDisk) {
			t.Errorf("it failed with %v", err)
		}
		_ = c.Stop(broken)
		c.Disk(broken).SetBroken(false)
		if err := c.Wipe(broken); err != nil {
			t.Fatal(err)
		}
		start(t, c, broken)
		eventually(t, "the wiped server to join",
			func() bool { return c.Process(broken).NodeID() != 0 })
		if now := c.Process(broken).NodeID(); now == before {
			t.Errorf("a wiped server is node %d again, and would vote as it", now)
		}
		put(t, ks, "k", "3")
		if replicas := c.Process(broken).Replicas(); len(replicas) != 0 {
			t.Errorf("the new node has replicas of its predecessor: %+v", replicas)
		}
		// The two others are a quorum; with one of them gone there is none, whatever the wiped one
		// would say.
		for i := 1; i < c.Servers(); i++ {
			if i != broken {
				c.Kill(i, 0)
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := ks.Put(ctx, []byte("k"), []byte("4")); err == nil {
			t.Error("a write was acknowledged with one of three replicas, and a wiped disk")
		}
	})
}

// A power cut is one moment for all servers: what none of them had synced, none of them has
// afterwards, however long their disks are busy.
func TestKillAllIsOneMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "synced")
		// A writer that waits for the first disk gives the others time.
		for i, takes := range []time.Duration{20 * time.Second, 2 * time.Second, 2 * time.Second} {
			c.Disk(i).SetSyncTimes(takes, takes)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := ks.Put(ctx, []byte("k"), []byte("not synced")); !errors.Is(err,
			kv.ErrOutcomeUnknown) {
			t.Fatalf("a put that no disk has synced: %v", err)
		}
		c.KillAll(0, 0, 1, 2)
		for i := range c.Servers() {
			c.Disk(i).SetSyncDelay(0)
			start(t, c, i)
		}
		ready(t, c)
		mustHold(t, ks, "k", "synced")
	})
}
