package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// wipe is the last fault of a run: a data node loses its directory, and comes back as another node
// at the same address. All its partitions keep two replicas of three. Every key of the probes must
// stay there and must stay writable, also while the other nodes send messages for the old node to
// the address of the new node.
func (n *nemesis) wipe(ctx context.Context) error {
	random := rand.New(rand.NewPCG(n.options.seed, 0x77697065))
	server := anyNode(random)
	s := n.servers[server]
	n.proof.Weather.Begin() // the storm does not end: the lost replicas are not rebuilt
	if err := n.kill([]int{server}); err != nil {
		return err
	}
	n.journal.note("wipe: %s lost its directory", s.Name)
	if err := removeContents(s.Dir); err != nil {
		return err
	}
	if err := n.start(server); err != nil {
		return err
	}
	begin := time.Now()
	waiting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	err := process.Until(waiting, "every server is ready after "+s.Name+" lost its directory",
		50*ms, n.ready, s.Process())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		n.proof.Violation("%v", err)
		return nil
	}
	n.journal.say("%s lost its directory, and was ready as a new node after %v", s.Name,
		time.Since(begin).Round(ms))
	for i, key := range n.probes.keys {
		_, err := n.probes.keyspace.Get(waiting, []byte(key))
		if err == nil {
			_, err = n.probes.keyspace.Put(waiting, []byte(key), []byte("after the wipe"))
		}
		if err != nil {
			n.proof.Violation("partition %d of %s, after %s lost its directory: %v", i,
				probeKeyspace, s.Name, err)
		}
	}
	n.watchProcesses()
	return n.watchLogs(time.Now().Before(n.clocksUntil))
}

// removeContents empties a directory.
func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failures []error
	for _, entry := range entries {
		failures = append(failures, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	return nil
}
