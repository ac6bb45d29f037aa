package table

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// watchRetry is the first pause after the metadata stream broke; it doubles up to
	// maxWatchRetry.
	watchRetry    = 100 * time.Millisecond
	maxWatchRetry = 5 * time.Second
	// healthyWatch is how long a stream must have lasted for the next pause to be the first again.
	healthyWatch = 10 * time.Second
	// MissingAfter is how long the core may be silent before that is logged: while servers start
	// and restart it is normal.
	MissingAfter = 10 * time.Second
)

// Source connects to the core's table.
type Source interface {
	// Watch calls fn with the changes after a revision, in order, until the context or the stream
	// ends, or fn returns an error. With after 0 it begins with the whole table. It may be called
	// again at any time.
	Watch(ctx context.Context, after uint64, fn func(*clusterpb.TableUpdate) error) error
}

// Listener is told of changes when the table is current. Follower.Run calls it.
type Listener interface {
	KeyspaceChanged(k *clusterpb.Keyspace)
	// PartitionsChanged is called with each update.
	PartitionsChanged(u *clusterpb.TableUpdate)
	// Present reports that the table has reached the present of the core.
	Present()
}

// Listeners tells several Listeners, in their order.
type Listeners []Listener

// KeyspaceChanged implements Listener.
func (all Listeners) KeyspaceChanged(k *clusterpb.Keyspace) {
	for _, l := range all {
		l.KeyspaceChanged(k)
	}
}

// PartitionsChanged implements Listener.
func (all Listeners) PartitionsChanged(u *clusterpb.TableUpdate) {
	for _, l := range all {
		l.PartitionsChanged(u)
	}
}

// Present implements Listener.
func (all Listeners) Present() {
	for _, l := range all {
		l.Present()
	}
}

// Follower follows the core's table, in the goroutine of Run.
type Follower struct {
	// Cluster is the id of the cluster. The table of another cluster is refused.
	Cluster uint64
	Source  Source
	// Log is the database that keeps the table.
	Log      *engine.Log
	Table    *Current
	Listener Listener
	Logger   *slog.Logger
	// Now is a monotonic clock in nanoseconds; Jitter returns a random part of a duration.
	Now    func() int64
	Jitter func(time.Duration) int64
	// Streams counts the streams that ended; Revision is the revision of the table.
	Streams  prometheus.Counter
	Revision prometheus.Gauge

	// fresh is the table that is being sent as a whole; nil when there are only changes.
	fresh *Table
	// live is set when the stream has reported that it has reached the present.
	live bool
}

// Run follows the table until the context ends.
func (f *Follower) Run(ctx context.Context) {
	missing, live := false, f.Now()
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		t := f.Table.Load()
		after := t.Revision
		f.fresh, f.live = nil, false
		if !t.Complete || t.Outdated {
			after, f.fresh = 0, New()
		}
		err := f.Source.Watch(ctx, after, f.Take)
		if ctx.Err() != nil {
			return
		}
		f.Streams.Inc()
		if time.Since(began) >= healthyWatch || f.live {
			failures, missing, live = 0, false, f.Now()
		}
		if !missing && time.Duration(f.Now()-live) >= MissingAfter {
			missing = true
			f.Logger.Warn("the consistent core does not send metadata; what this node holds is "+
				"served meanwhile", "error", err)
		} else {
			f.Logger.Debug("the metadata stream ended", "error", err)
		}
		delay := min(maxWatchRetry, watchRetry<<min(failures, 10))
		if backoff.Sleep(ctx, delay/2+time.Duration(f.Jitter(delay))) != nil {
			return
		}
	}
}

// Take takes one update. After an error the stream ends, and another begins at the table's
// revision.
func (f *Follower) Take(u *clusterpb.TableUpdate) error {
	if u.GetCluster() != 0 && u.GetCluster() != f.Cluster {
		f.Logger.Error("metadata of another cluster is refused: check the addresses of the core",
			"cluster", f.Cluster, "theirs", u.GetCluster())
		return fmt.Errorf("metadata of cluster %016x; this node belongs to %016x", u.GetCluster(),
			f.Cluster)
	}
	u = f.sift(u)
	if u.GetReset_() {
		f.fresh = New()
	}
	if f.fresh == nil {
		return f.changed(u)
	}
	f.fresh = f.fresh.With(u)
	if !u.GetComplete() {
		return nil
	}
	return f.replaced()
}

// sift drops invalid descriptors: they are never acted on. The update itself belongs to its sender.
func (f *Follower) sift(u *clusterpb.TableUpdate) *clusterpb.TableUpdate {
	var kept []*clusterpb.Partition
	for i, p := range u.Partitions {
		err := keys.ValidatePartition(p)
		if err != nil {
			f.Logger.Error("the core sent a descriptor that makes no sense; it is ignored",
				"error", err)
			if kept == nil {
				kept = append(make([]*clusterpb.Partition, 0, len(u.Partitions)),
					u.Partitions[:i]...)
			}
			continue
		}
		if kept != nil {
			kept = append(kept, p)
		}
	}
	if kept == nil {
		return u
	}
	return &clusterpb.TableUpdate{
		Nodes: u.Nodes, Keyspaces: u.Keyspaces, Partitions: kept, Leaders: u.Leaders,
		RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
		RemovedPartitions: u.RemovedPartitions,
		Revision:          u.Revision, Complete: u.Complete, Reset_: u.Reset_, Cluster: u.Cluster,
	}
}

// changed applies changes to the table.
func (f *Follower) changed(u *clusterpb.TableUpdate) error {
	old := f.Table.Load()
	if u.GetRevision() != 0 && u.GetRevision() < old.Revision {
		return fmt.Errorf("a change of revision %d came after revision %d", u.GetRevision(),
			old.Revision)
	}
	next := old.With(u)
	f.publish(old, next, false)
	if u.GetComplete() && !f.live {
		f.live = true
		f.Listener.Present()
	}
	return nil
}

// replaced replaces the table by a whole new one. A partition that is not in it is removed: that is
// sound because the table is whole, of this cluster, and not older than the last one.
func (f *Follower) replaced() error {
	old := f.Table.Load()
	fresh := f.fresh
	f.fresh = nil
	if fresh.Revision < old.Revision {
		f.Logger.Warn("a member of the core sent a table older than the one this node has, and "+
			"nothing is done because of it: "+
			"the member lags, or the core was restored from a backup",
			"revision", fresh.Revision, "known", old.Revision)
		return fmt.Errorf("the table is of revision %d, revision %d is known", fresh.Revision,
			old.Revision)
	}
	fresh.Complete = true
	if fresh.Cluster == 0 {
		fresh.Cluster = f.Cluster
	}
	f.live = true
	f.publish(old, old.replacedBy(fresh), true)
	f.Listener.Present()
	return nil
}

// publish makes a table the current one, and keeps it on disk.
func (f *Follower) publish(old, next *Table, whole bool) {
	delta := Diff(old, next)
	durable, known := delta, old
	if whole {
		known = New()
		durable = Diff(known, next)
	}
	if err := cacheUpdate(f.Log, next, withoutState(durable, known), whole); err != nil {
		f.Logger.Warn("the partition table could not be kept on disk", "error", err)
	}
	// INVARIANT: the table is on its way to the disk before it is published: a replica that is
	// created because of it is never found there without it.
	f.Table.Publish(next)
	f.Revision.Set(float64(next.Revision))
	for _, k := range delta.Keyspaces {
		f.Listener.KeyspaceChanged(k)
	}
	f.Listener.PartitionsChanged(delta)
}

// withoutState leaves out nodes whose only changes are not worth keeping: whether they live, and
// their statistics.
func withoutState(u *clusterpb.TableUpdate, old *Table) *clusterpb.TableUpdate {
	kept := make([]*clusterpb.Node, 0, len(u.Nodes))
	for _, n := range u.Nodes {
		bare := bareNode(n)
		if known := old.Node(keys.NodeID(n.Id)); known != nil &&
			proto.Equal(bareNode(known), bare) {
			continue
		}
		kept = append(kept, bare)
	}
	return &clusterpb.TableUpdate{
		Nodes: kept, Keyspaces: u.Keyspaces, Partitions: u.Partitions,
		RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
		RemovedPartitions: u.RemovedPartitions,
	}
}

// bareNode returns the part of a node that is worth keeping: all but what changes while nothing
// happens to it. A field is kept unless it is named here, since a node that restarts is not told it
// again: the core continues after the revision that is on the disk. Naming fewer fields takes a new
// Format.
func bareNode(n *clusterpb.Node) *clusterpb.Node {
	bare := proto.CloneOf(n)
	bare.Alive, bare.Stats, bare.AliveSinceUnixMs, bare.SilentSinceUnixMs = false, nil, 0, 0
	return bare
}
