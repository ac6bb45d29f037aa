package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A snapshot that a follower could not take, for its disk is full as a rule, is not sent again with
// its next answer to a heartbeat: each try reads, sends and writes what a partition has.

const (
	// snapshotRetry is the wait after the first failure in a row, and mostSnapshotRetry the longest;
	// in between it doubles.
	snapshotRetry     = 100 * time.Millisecond
	mostSnapshotRetry = 5 * time.Second
)

// snapshotFailures are those of snapshots to one follower, in a row.
type snapshotFailures struct {
	count int
	next  int64
}

// mayTry says whether a follower may be sent a snapshot again. Of the shard worker.
func (g *Group) mayTry(to keys.ReplicaID) bool {
	return g.host.now() >= g.steps.failures[to].next
}

// tried notes how the last one ended. Of the shard worker.
func (g *Group) tried(to keys.ReplicaID, ok bool) {
	if ok {
		delete(g.steps.failures, to)
		return
	}
	f := g.steps.failures[to]
	f.next = g.host.now() + int64(min(snapshotRetry<<min(f.count, 16), mostSnapshotRetry))
	f.count++
	if g.steps.failures == nil || len(g.steps.failures) > maxFailing {
		g.steps.failures = make(map[keys.ReplicaID]snapshotFailures)
	}
	g.steps.failures[to] = f
}

// maxFailing bounds the followers, former ones included, of which failures are remembered.
const maxFailing = 32
