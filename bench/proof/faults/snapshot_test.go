package faults

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// TestSnapshot stops a node while 200 MB are written, and restarts it under load. When the node has
// caught up, another node is killed. All data can still be read, so the restarted node has it.
func TestSnapshot(t *testing.T) {
	const (
		total     = 200 << 20
		valueSize = 32 << 10
	)
	e := newEnvironment(t, 8*time.Minute, sixProcesses())
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	load := steadyLoad(store)
	load.Start(e.ctx)
	defer load.Stop()
	e.pass(2 * time.Second)

	away := e.cluster.Nodes[1]
	sizeBefore := directorySize(away.Dir)
	e.must(away.Kill(), "kill %s", away.Name)
	begin := time.Now()
	written := e.writeBulk(store, "bulk", total/valueSize, valueSize)
	e.Logf("%d MB written in %v while %s was away", total>>20,
		time.Since(begin).Round(time.Millisecond), away.Name)

	back := time.Now()
	ready := e.restart(away)
	e.wait(3*time.Minute, away.Name+" has caught up", func(context.Context) error {
		// The data cannot be compressed. So it has arrived when the directory has grown by about
		// its size.
		if grown := directorySize(away.Dir) - sizeBefore; grown < total*9/10 {
			return fmt.Errorf("the directory has grown by %d MB of %d MB", grown>>20, total>>20)
		}
		return nil
	})
	caughtUp := time.Since(back)
	samples, err := away.Metrics(e.ctx)
	e.must(err, "metrics of %s", away.Name)
	received := fleet.Sum(samples, "snapshot")
	e.result("%s was away while %d MB were written; ready %v after its restart, caught up after "+
		"%v; its metrics with \"snapshot\" in their names: %s",
		away.Name, total>>20, ready.Round(time.Millisecond), caughtUp.Round(time.Millisecond),
		named(samples, "snapshot"))
	if received == 0 {
		e.Errorf("%s has no metric that shows a received snapshot", away.Name)
	}

	other := e.cluster.Nodes[2]
	e.must(other.Kill(), "kill %s", other.Name)
	begin = time.Now()
	e.mustHave(store, written)
	e.result("with %s killed, all %d values of %d KB were read in %v", other.Name, len(written),
		valueSize>>10, time.Since(begin).Round(time.Millisecond))
	e.check(load)
	e.restart(other)
}

// writeBulk writes n incompressible values, many at once. Every write must succeed.
func (e *environment) writeBulk(store *Store, prefix string, n, size int) map[string]string {
	e.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	pool := make([]byte, 1<<20+size)
	for i := range pool {
		pool[i] = byte(random.Uint32())
	}
	text := string(pool)
	written := make(map[string]string, n)
	group, ctx := errgroup.WithContext(e.ctx)
	group.SetLimit(16)
	for i := range n {
		key := fmt.Sprintf("%s-%08d", prefix, i)
		offset := random.IntN(1 << 20)
		value := text[offset : offset+size] // shares memory with all other values
		written[key] = value
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if err := store.Put(ctx, key, value); err != nil {
				return fmt.Errorf("put %s: %w", key, err)
			}
			return nil
		})
	}
	e.must(group.Wait(), "write %d values of %d bytes", n, size)
	return written
}

// directorySize adds up the sizes of the files below dir. It ignores files that disappear
// meanwhile.
func directorySize(dir string) int64 {
	var sum int64
	// Errors are files that were removed meanwhile.
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// named lists the samples whose name contains a word and whose value is not 0.
func named(samples []fleet.Sample, word string) string {
	text := ""
	for _, s := range samples {
		if fleet.Sum([]fleet.Sample{s}, word) != 0 {
			text += fmt.Sprintf(" %s{%s}=%g", s.Name, s.Labels, s.Value)
		}
	}
	if text == "" {
		return "none"
	}
	return text[1:]
}
