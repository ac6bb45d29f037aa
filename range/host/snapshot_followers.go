package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A follower that was sent the state continues with the log behind it. If the log no longer has
// those entries when the follower has installed the snapshot, the follower needs another snapshot,
// and so on for as long as the partition is written to. So the log keeps the entries after a
// snapshot that is on its way, and for a while afterwards, within its share of what all groups may
// keep.
//
// If a follower could not take a snapshot, usually because its disk is full, the leader does not
// try again at the follower's next answer to a heartbeat: each try reads, sends and writes the
// whole partition.

//
// A snapshot that a follower could not take, for its disk is full as a rule, is not sent again with
// its next answer to a heartbeat: each try reads, sends and writes what a partition has.

const (
	// snapshotLogTime is how long after its stream a follower may take to install a snapshot and to
	// say so.
	snapshotLogTime = time.Minute
	// snapshotLogShare divides Config.TotalLogBytes into the parts that a group may keep for such
	// followers. At most maxSnapshots snapshots are sent at a time.
	snapshotLogShare = 2 * maxSnapshots
	// snapshotRetry is the wait after the first failure in a row. It doubles with each failure, up
	// to mostSnapshotRetry.
	snapshotRetry     = 100 * time.Millisecond
	mostSnapshotRetry = 5 * time.Second
	// maxFailing bounds the followers, including former ones, whose failures are remembered.
	maxFailing = 32
)

// snapshotFollowers is what a leader remembers of the followers that it sends snapshots. Only the
// shard worker may touch it. Times are monotonic, in nanoseconds.
type snapshotFollowers struct {
	// kept says which entries the log keeps for followers that were sent a snapshot.
	kept map[keys.ReplicaID]keptFor
	// failures counts the failed snapshots per follower.
	failures map[keys.ReplicaID]snapshotFailures
}

// keptFor says that the log keeps the entries after index for one follower, until the given time.
// until is 0 while the snapshot is being sent.
type keptFor struct {
	index uint64
	until int64
}

// snapshotFailures counts the snapshots to one follower that failed in a row.
type snapshotFailures struct {
	count int
	// next is when the next try may begin.
	next int64
}

// mayBegin says whether a follower may be sent a snapshot again.
func (f *snapshotFollowers) mayBegin(to keys.ReplicaID, now int64) bool {
	return now >= f.failures[to].next
}

// begin notes that a snapshot of this index, or a later one, is being sent to a follower.
func (f *snapshotFollowers) begin(to keys.ReplicaID, index uint64) {
	if f.kept == nil {
		f.kept = make(map[keys.ReplicaID]keptFor)
	}
	f.kept[to] = keptFor{index: index}
}

// end notes how the sending of a snapshot ended.
func (f *snapshotFollowers) end(to keys.ReplicaID, ok bool, now int64) {
	if ok {
		delete(f.failures, to)
		if k, found := f.kept[to]; found {
			k.until = now + int64(snapshotLogTime)
			f.kept[to] = k
		}
		return
	}
	delete(f.kept, to)
	x := f.failures[to]
	x.next = now + int64(min(snapshotRetry<<min(x.count, 16), mostSnapshotRetry))
	x.count++
	if f.failures == nil || len(f.failures) > maxFailing {
		f.failures = make(map[keys.ReplicaID]snapshotFailures)
	}
	f.failures[to] = x
}

// needed returns up to which index the log may be truncated: up to `to`, or less if followers that
// were sent a snapshot need more. full says that the log already has the group's share of all logs.
func (f *snapshotFollowers) needed(to uint64, core *group.Group, now int64, full bool) uint64 {
	if len(f.kept) == 0 {
		return to
	}
	if !core.Leadership().IsLeader {
		clear(f.kept)
		return to
	}
	core.Followers(func(id keys.ReplicaID, p group.Progress) {
		if k, found := f.kept[id]; found && (p.Match >= k.index ||
			k.until != 0 && now >= k.until) {
			delete(f.kept, id)
		}
	})
	if full {
		return to
	}
	for _, k := range f.kept {
		to = min(to, k.index)
	}
	return to
}
