package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
)

// manyPartitions is near the limit of a keyspace.
const manyPartitions = 10_000

// commandTimeout is the default of the command line: the shortest of all default time-outs.
const commandTimeout = 10 * time.Second

// TestManyPartitions uses a keyspace of ten thousand partitions like one of eight. The keyspace is
// created, counted, filled, scanned and dropped with the default time-outs, without pauses in
// between. A server with all of its replicas is restarted. The durations are reported.
func TestManyPartitions(t *testing.T) {
	e := newEnvironment(t, 10*time.Minute, fleet.Layout{Cores: 1, Nodes: 3})
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.Start(ctx), "start the cluster")
	made := 0
	client, err := kv.Open(ctx, e.cluster.Endpoints(), kv.RequestTimeout(commandTimeout),
		kv.CreationProgress(func(_ string, n, _ int) { made = n }))
	e.must(err, "open a client")
	defer client.Close()
	timed := func(what string, do func() error) {
		e.Helper()
		began := time.Now()
		e.must(do(), "%s", what)
		e.result("%s: %v", what, time.Since(began).Round(10*time.Millisecond))
	}
	before := e.residentBytes()
	var ks *kv.Keyspace
	timed("create", func() (err error) {
		ks, err = client.CreateKeyspace(e.ctx, "many", kv.Hash(manyPartitions))
		return err
	})
	if made != manyPartitions {
		e.Errorf("the creation told of %d partitions", made)
	}
	counts := func(want uint64) func() error {
		return func() error {
			n, err := ks.Count(e.ctx)
			if err == nil && n != want {
				err = fmt.Errorf("counted %d, want %d", n, want)
			}
			return err
		}
	}
	timed("count of the new keyspace", counts(0))
	timed("count again", counts(0))
	timed("count in a view", func() error {
		return client.View(e.ctx, func(s *kv.Snapshot) error {
			n, err := s.Count(e.ctx, ks)
			if err == nil && n != 0 {
				err = fmt.Errorf("counted %d", n)
			}
			return err
		})
	})
	e.result("memory of an idle partition in a server: %d KiB resident",
		(e.residentBytes()-before)/manyPartitions/int64(len(e.cluster.Nodes))>>10)
	const rows = 2000
	timed(fmt.Sprintf("put %d rows", rows), func() error {
		var group errgroup.Group
		group.SetLimit(32)
		for i := range rows {
			group.Go(func() error {
				_, err := ks.Put(e.ctx, fmt.Appendf(nil, "key %05d", i), []byte("value"))
				return err
			})
		}
		return group.Wait()
	})
	timed("count of the rows", counts(rows))
	timed("scan", func() error {
		n := 0
		for _, err := range ks.Scan(e.ctx) {
			if err != nil {
				return err
			}
			n++
		}
		if n != rows {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
	node := e.cluster.Nodes[1]
	e.must(node.Stop(time.Minute), "stop %s", node.Name)
	e.result("restart of a server: ready after %v", e.restart(node).Round(10*time.Millisecond))
	timed("count after the restart", counts(rows))
	timed("drop", func() error { return client.DropKeyspace(e.ctx, "many") })
	timed("create another one", func() (err error) {
		ks, err = client.CreateKeyspace(e.ctx, "many", kv.Hash(32))
		return err
	})
	timed("count of that", counts(0))
	timed("removal of the replicas of the first", func() error {
		e.wait(5*time.Minute, "no replica is left", func(ctx context.Context) error {
			for _, s := range e.cluster.Nodes {
				page, err := s.Page(ctx, "/metrics")
				if err != nil {
					return err
				}
				if !strings.Contains(page, `tidemark_node_replicas{part="node"} 32`+"\n") {
					return fmt.Errorf("%s has other replicas", s.Name)
				}
			}
			return nil
		})
		return nil
	})
}

// residentBytes returns the resident memory of all nodes together.
func (e *environment) residentBytes() (sum int64) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		usage, err := s.Process().Usage()
		e.must(err, "memory of %s", s.Name)
		sum += usage.ResidentBytes
	}
	return sum
}
