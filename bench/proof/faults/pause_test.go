package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

// pauses are how long leaders are stopped. Every leader must survive the first pause. The other
// pauses are close to the election timeout, where an old and a new leader are closest together.
var pauses = []time.Duration{15 * time.Second, 4 * time.Second, 2500 * time.Millisecond,
	2 * time.Second, 1500 * time.Millisecond}

// TestPauseLeader pauses a node that leads partitions, writes through the leaders that follow it,
// and continues the node. No server answers a read with less than what was acknowledged before the
// read began.
func TestPauseLeader(t *testing.T) {
	e := newEnvironment(t, 5*time.Minute, sixProcesses())
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	n := &numbers{keys: fleet.PartitionKeys(hash), checks: make([]history.Monotonic, hash)}
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var traffic sync.WaitGroup
	for i := range n.keys {
		traffic.Go(func() { n.write(ctx, store, i) })
	}
	for range 4 {
		reader := e.open(keyspace) // each reader finds the leader on its own
		for i := range n.keys {
			traffic.Go(func() { n.read(ctx, reader, i) })
		}
	}
	e.wait(20*time.Second, "every partition was written", func(context.Context) error {
		for i := range n.checks {
			if n.checks[i].Known() == 0 {
				return fmt.Errorf("partition %d was not", i)
			}
		}
		return nil
	})
	for _, pause := range pauses {
		e.pauseOnce(n, pause)
	}
	stop()
	traffic.Wait()
	e.result("%d writes acknowledged and %d reads through the SDK", n.wrote.Load(),
		n.answered.Load())
	if err := n.wrong.err(); err != nil {
		e.Errorf("reads that cannot be: %v", err)
	} else {
		e.result("no stale read")
	}
}

// pauseOnce pauses the node that leads most partitions for a while. Meanwhile readers ask every
// server directly, with the routes from before the pause.
func (e *environment) pauseOnce(n *numbers, pause time.Duration) {
	e.Helper()
	var paused *fleet.Server
	e.wait(20*time.Second, "a node leads partitions", func(ctx context.Context) error {
		counts, err := e.admin.LeaderCounts(ctx, keyspace)
		if err != nil {
			return err
		}
		for _, s := range e.cluster.Nodes {
			if counts[s] > counts[paused] {
				paused = s
			}
		}
		if paused == nil {
			return fmt.Errorf("leaders: %v", counts)
		}
		return nil
	})
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	targets := e.rawTargets(n)
	var raw []*rawReader
	var traffic sync.WaitGroup
	for _, s := range e.cluster.Nodes {
		for range 2 {
			r := newRawReader(s, 5*time.Millisecond, targets)
			raw = append(raw, r)
			traffic.Go(func() { r.run(ctx) })
		}
	}
	e.wait(10*time.Second, "the server to be stopped answers direct reads",
		func(context.Context) error {
			if answers(raw, paused) < 50 {
				return fmt.Errorf("%d answers: its route is wrong", answers(raw, paused))
			}
			return nil
		})
	led := e.ledBy(paused)
	answersBefore, numbersBefore := answers(raw, paused), n.known()
	e.must(paused.Process().Pause(), "pause %s", paused.Name)
	e.pass(pause)
	numbersAfter := n.known()
	e.must(paused.Process().Resume(), "resume %s", paused.Name)
	e.pass(4 * time.Second)
	stop()
	traffic.Wait()

	written := 0
	for i := range numbersAfter {
		if led[i] && numbersAfter[i] > numbersBefore[i] {
			written++
		}
	}
	refused := 0
	for _, r := range raw {
		_, refusals, violated := r.result()
		for _, n := range refusals {
			refused += n
		}
		for _, err := range violated {
			n.wrong.add(fmt.Errorf("pause of %v: %w", pause, err))
		}
	}
	e.result("%s, which led %d of %d partitions, was stopped for %v: %d of those were written "+
		"meanwhile; asked directly, the servers answered %d reads and refused %d; %s answered "+
		"%d before and %d after",
		paused.Name, len(led), hash, pause, written, answers(raw, nil), refused, paused.Name,
		answersBefore, answers(raw, paused)-answersBefore)
	if pause > 5*time.Second && written < len(led) {
		e.Errorf("only %d of the %d partitions that %s led were written while it was stopped",
			written, len(led), paused.Name)
	}
}

// answers returns how many reads a server (nil: all servers) answered when asked directly.
func answers(raw []*rawReader, s *fleet.Server) int {
	sum := 0
	for _, r := range raw {
		if s == nil || r.server == s {
			n, _, _ := r.result()
			sum += n
		}
	}
	return sum
}

// rawTargets returns the keys with their present routes.
func (e *environment) rawTargets(n *numbers) []rawTarget {
	e.Helper()
	infos, err := e.admin.Partitions(e.ctx, keyspace)
	e.must(err, "partitions")
	var targets []rawTarget
	for _, info := range infos {
		i := int(info.Partition.Hash)
		targets = append(targets, rawTarget{key: []byte(n.keys[i]), partition: info.Partition,
			term: info.Term, check: &n.checks[i]})
	}
	return targets
}

// numbers has one key in each partition. One writer increments it, and many readers watch it.
type numbers struct {
	keys   []string
	checks []history.Monotonic
	wrong  collected

	wrote, answered atomic.Int64
}

// known returns the lowest value that each key certainly has.
func (n *numbers) known() []uint64 {
	known := make([]uint64, len(n.checks))
	for i := range n.checks {
		known[i] = n.checks[i].Known()
	}
	return known
}

// write increments a key, one write at a time, until ctx ends.
func (n *numbers) write(ctx context.Context, store *Store, i int) {
	for number := uint64(1); ctx.Err() == nil; number++ {
		n.checks[i].BeginWrite(number)
		write, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := store.Put(write, n.keys[i], string(encodeNumber(number, 64)))
		cancel()
		switch {
		case err == nil:
			n.checks[i].Wrote(number)
			n.wrote.Add(1)
		case ctx.Err() != nil:
			return
		case !certainlyRefused(err):
			// The write may take effect after the next write, and look like a stale read. So the
			// key cannot be judged any more.
			n.wrong.add(fmt.Errorf("the outcome of a write to %s is unknown after 20 s: %w",
				n.keys[i], err))
			return
		}
	}
}

// read reads a key again and again.
func (n *numbers) read(ctx context.Context, store *Store, i int) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		floor := n.checks[i].Known()
		found, err := store.Get(ctx, n.keys[i])
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// a read without an answer proves nothing; other tests check that reads go on
			continue
		}
		number, err := decodeNumber(found.Present, []byte(found.Value))
		if err == nil {
			err = n.checks[i].Read(floor, number)
		}
		if err != nil {
			n.wrong.add(fmt.Errorf("through the SDK, key %s: %w", n.keys[i], err))
		}
		n.answered.Add(1)
	}
}
