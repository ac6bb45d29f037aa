package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
)

// TestPauseLeader stops a node that leads partitions for 15 seconds, writes through the leaders that follow it, and lets it
// go on: no read that any server answers is older than what was acknowledged before the read began.
func TestPauseLeader(t *testing.T) {
	e := newEnvironment(t, 3*time.Minute, sixProcesses())
	e.start(keyspace, hash, 3)
	counts, err := e.admin.LeaderCounts(e.ctx, keyspace)
	e.must(err, "leaders")
	var paused *Server
	for _, s := range e.cluster.Nodes {
		if paused == nil || counts[s] > counts[paused] {
			paused = s
		}
	}
	e.must(func() error {
		if paused == nil || counts[paused] == 0 {
			return fmt.Errorf("no node leads a partition of %s: %v", keyspace, counts)
		}
		return nil
	}(), "choose a leader")

	store := e.open(keyspace)
	checks := make([]history.Monotonic, hash)
	keys := probeKeys(hash)
	var wrong collected
	var wrote, read atomic.Int64
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var traffic sync.WaitGroup
	for i := range keys {
		traffic.Go(func() { numberWriter(ctx, store, keys[i], &checks[i], &wrote, &wrong) })
	}
	for range 4 {
		reader := e.open(keyspace) // each reader has its own idea of who leads
		for i := range keys {
			traffic.Go(func() { numberReader(ctx, reader, keys[i], &checks[i], &read, &wrong) })
		}
	}
	e.wait(20*time.Second, "every partition was written", func(context.Context) error {
		for i := range checks {
			if checks[i].Known() == 0 {
				return fmt.Errorf("partition %d was not", i)
			}
		}
		return nil
	})

	targets := e.rawTargets(keys, checks)
	var raw []*rawReader
	for _, s := range e.cluster.Nodes {
		for range 2 {
			r := newRawReader(s, 5*time.Millisecond, targets)
			raw = append(raw, r)
			traffic.Go(func() { r.run(ctx) })
		}
	}
	e.pass(2 * time.Second)
	before := make([]uint64, hash)
	for i := range checks {
		before[i] = checks[i].Known()
	}
	led := e.ledBy(paused)
	pausedAnswers := answers(raw, paused)
	e.must(paused.Process().Pause(), "pause %s", paused.Name)
	e.pass(15 * time.Second)
	during := make([]uint64, hash)
	for i := range checks {
		during[i] = checks[i].Known()
	}
	e.must(paused.Process().Resume(), "resume %s", paused.Name)
	e.pass(5 * time.Second)
	stop()
	traffic.Wait()

	for i := range checks {
		if during[i] <= before[i] {
			e.Errorf("partition %d was not written while %s was paused: the test shows nothing for it", i, paused.Name)
		}
	}
	refused := 0
	for _, r := range raw {
		_, refusals, violated := r.result()
		for _, n := range refusals {
			refused += n
		}
		for _, err := range violated {
			wrong.add(err)
		}
	}
	e.result("%s, which led %d of %d partitions, was stopped for 15 s; %d writes acknowledged and %d reads through the SDK; asked directly, the servers answered %d reads and refused %d, %s answered %d of them before the stop and %d in all",
		paused.Name, len(led), hash, wrote.Load(), read.Load(), answers(raw, nil), refused, paused.Name, pausedAnswers, answers(raw, paused))
	if err := wrong.err(); err != nil {
		e.Errorf("reads that cannot be: %v", err)
	} else {
		e.result("no stale read")
	}
	if answers(raw, paused) == 0 {
		e.Error("the paused server never answered a direct read: its route was wrong, and the test shows little")
	}
}

// answers is how many reads a server (nil: all) answered when asked directly.
func answers(raw []*rawReader, s *Server) int {
	sum := 0
	for _, r := range raw {
		if s == nil || r.server == s {
			n, _, _ := r.result()
			sum += n
		}
	}
	return sum
}

// rawTargets are the keys with the routes as they are now.
func (e *environment) rawTargets(keys []string, checks []history.Monotonic) []rawTarget {
	e.Helper()
	infos, err := e.admin.Partitions(e.ctx, keyspace)
	e.must(err, "partitions")
	var targets []rawTarget
	for _, info := range infos {
		i := int(info.Partition.Hash)
		targets = append(targets, rawTarget{key: []byte(keys[i]), partition: info.Partition, term: info.Term, check: &checks[i]})
	}
	return targets
}

// numberWriter counts a key up, one write at a time, for as long as ctx lasts.
func numberWriter(ctx context.Context, store *Store, key string, check *history.Monotonic, wrote *atomic.Int64, wrong *collected) {
	for n := uint64(1); ctx.Err() == nil; n++ {
		check.BeginWrite(n)
		write, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := store.Put(write, key, string(encodeNumber(n, 64)))
		cancel()
		switch {
		case err == nil:
			check.Wrote(n)
			wrote.Add(1)
		case ctx.Err() != nil:
			return
		case !certainlyRefused(err):
			// It may yet take effect, after the next write, and look like a stale read: the key cannot be judged any more.
			wrong.add(fmt.Errorf("the outcome of a write to %s is unknown after 20 s: %w", key, err))
			return
		}
	}
}

// numberReader reads a key again and again.
func numberReader(ctx context.Context, store *Store, key string, check *history.Monotonic, read *atomic.Int64, wrong *collected) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		floor := check.Known()
		found, err := store.Get(ctx, key)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // a read without an answer shows nothing; that reads go on is what kill-one measures
		}
		n, err := decodeNumber(found.Present, []byte(found.Value))
		if err == nil {
			err = check.Read(floor, n)
		}
		if err != nil {
			wrong.add(fmt.Errorf("through the SDK, key %s: %w", key, err))
		}
		read.Add(1)
	}
}
