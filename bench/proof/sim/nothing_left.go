package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// checkNothingIsLeft drops all keyspaces, after all other checks. Then nothing may be left of the
// keyspaces: no replica, no group, no peer that is pinged. No server may answer a request with an
// old route, not even when a new keyspace has the same name.
func (w *World) checkNothingIsLeft(counters *coverage, r *routes, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	r.check(ctx)
	// This client knows the routes of the keyspace from before the drop.
	client, err := w.Open(ctx)
	if err != nil {
		w.Violation("opening a client: %v", err)
		return
	}
	defer client.Close()
	if _, err := client.Keyspace(routesName).Put(ctx, []byte("kept"),
		[]byte("by the first keyspace of this name")); err != nil {
		w.Violation("a put in a cluster that is whole: %v", err)
	}
	w.mergeAll(ctx, client, random)
	if !w.dropAll(ctx, client) {
		return
	}
	w.awaitNothing(ctx, counters)

	// One replica, because a server that lost its disk may be missing.
	if _, err := client.CreateKeyspace(ctx, routesName, kv.Hash(2), kv.Replicas(1)); err != nil {
		w.Violation("creating keyspace %q again: %v", routesName, err)
		return
	}
	if pair, err := client.Keyspace(routesName).Get(ctx, []byte("kept")); !errors.Is(err,
		kv.ErrNotFound) {
		w.Violation("keyspace %q was dropped and created again, and has kept %q (%v)", routesName,
			pair.Value, err)
	}
	again, err := admin.New(client).Partitions(ctx, routesName)
	if err != nil {
		w.Violation("listing the partitions of %q: %v", routesName, err)
	}
	r.open()
	defer r.hangUp()
	for _, p := range r.partitions {
		if slices.ContainsFunc(again, func(a admin.PartitionInfo) bool { return a.ID == p.ID }) {
			w.Violation("partition id %d is used again", p.ID)
		}
		for server := range w.Cluster.Servers() {
			r.refused(ctx, server, p, p.Generation, random, "of a keyspace that was dropped")
		}
	}
	r.check(ctx)
}

// mergeAll asks for merges of neighbours, and returns when some merges may be half done.
func (w *World) mergeAll(ctx context.Context, client *kv.Client, random *rand.Rand) {
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		w.Violation("listing the partitions of a cluster that is whole: %v", err)
	}
	for _, p := range boundaries(partitions) {
		// If both of two neighbours are asked to merge with the next one, one request is refused.
		if m, err := admin.New(client).MergePartition(ctx, p.ID); err == nil {
			w.countMerge(m)
			w.count("drops during merges")
		}
	}
	time.Sleep(time.Duration(random.Int64N(int64(30 * time.Millisecond)))) // virtual
}

// dropAll drops every keyspace.
func (w *World) dropAll(ctx context.Context, client *kv.Client) bool {
	all, err := admin.New(client).Keyspaces(ctx)
	for _, ks := range all {
		if err == nil {
			err = client.DropKeyspace(ctx, ks.Name)
		}
	}
	if err != nil {
		w.Violation("dropping all keyspaces of a cluster that is whole: %v", err)
	}
	return err == nil
}

// awaitNothing waits until no server holds anything of a keyspace.
func (w *World) awaitNothing(ctx context.Context, counters *coverage) {
	var left []string
	for i := range w.Cluster.Servers() {
		w.checkHealthy(i)
	}
	for {
		left = left[:0]
		for i := range w.Cluster.Servers() {
			if p := w.Cluster.Process(i); p != nil {
				if n := len(p.Replicas()); n > 0 {
					left = append(left, fmt.Sprintf("server %d has %d replicas", i, n))
				}
			}
		}
		counters.gauges(w, func(server int, name string, l limit, value, _ float64) {
			if l.emptied && value != 0 {
				left = append(left, fmt.Sprintf("%s of server %d is %v", name, server, value))
			}
		})
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			w.Violation("all keyspaces were dropped, and %v later something is left:\n%s", recovery,
				strings.Join(left, "\n"))
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}
