package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// watchRetry is the first pause after the metadata stream broke; it doubles up to
	// maxWatchRetry.
	watchRetry    = 100 * time.Millisecond
	maxWatchRetry = 5 * time.Second
	// healthyWatch is how long a stream must have lasted for the next pause to be the first again.
	healthyWatch = 10 * time.Second
)

// follower follows the metadata, in one goroutine.
type follower struct {
	node *Node
	// fresh is the table that is being sent as a whole; nil when there are only changes.
	fresh *Table
	// live: the stream has said that it reached the present.
	live bool
}

func (f *follower) run(ctx context.Context) {
	n := f.node
	missing, live := false, n.now()
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		t := n.tables.load()
		after := t.Revision
		f.fresh, f.live = nil, false
		if !t.Complete {
			after, f.fresh = 0, newTable()
		}
		err := n.config.Metadata.Watch(ctx, after, f.take)
		if ctx.Err() != nil {
			return
		}
		n.metrics.streams.Inc()
		if time.Since(began) >= healthyWatch || f.live {
			failures, missing, live = 0, false, n.now()
		}
		if !missing && time.Duration(n.now()-live) >= coreMissingAfter {
			missing = true
			n.log.Warn("the consistent core does not send metadata; what this node holds is "+
				"served meanwhile", "error", err)
		} else {
			n.log.Debug("the metadata stream ended", "error", err)
		}
		delay := min(maxWatchRetry, watchRetry<<min(failures, 10))
		if pause(ctx, delay/2+time.Duration(n.jitter(delay))) != nil {
			return
		}
	}
}

// take takes one update. An error ends the stream, and another begins where the table stands.
func (f *follower) take(u *clusterpb.TableUpdate) error {
	n := f.node
	if u.GetCluster() != 0 && u.GetCluster() != n.config.Cluster {
		n.log.Error("metadata of another cluster is refused: check the addresses of the core",
			"cluster", n.config.Cluster, "theirs", u.GetCluster())
		return fmt.Errorf("metadata of cluster %016x; this node belongs to %016x", u.GetCluster(),
			n.config.Cluster)
	}
	u = f.sift(u)
	if u.GetReset_() {
		f.fresh = newTable()
	}
	if f.fresh == nil {
		return f.changed(u)
	}
	f.fresh = f.fresh.with(u)
	if !u.GetComplete() {
		return nil
	}
	return f.replaced()
}

// sift drops descriptors that make no sense: they are never acted on. The update itself is its
// sender's.
func (f *follower) sift(u *clusterpb.TableUpdate) *clusterpb.TableUpdate {
	var kept []*clusterpb.Partition
	for i, p := range u.Partitions {
		err := keys.ValidatePartition(p)
		if err != nil {
			f.node.log.Error("the core sent a descriptor that makes no sense; it is ignored",
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

// changed puts changes on top of the table.
func (f *follower) changed(u *clusterpb.TableUpdate) error {
	n := f.node
	old := n.tables.load()
	if u.GetRevision() != 0 && u.GetRevision() < old.Revision {
		return fmt.Errorf("a change of revision %d came after revision %d", u.GetRevision(),
			old.Revision)
	}
	next := old.with(u)
	f.publish(old, next, false)
	if u.GetComplete() && !f.live {
		f.live = true
		n.reconciler.everything()
	}
	return nil
}

// replaced puts a whole table in place of the old one. A partition that is not in it is removed:
// that is sound because the table is whole, of this cluster, and not older than the last one.
func (f *follower) replaced() error {
	n := f.node
	old := n.tables.load()
	fresh := f.fresh
	f.fresh = nil
	if fresh.Revision < old.Revision {
		n.log.Warn("a member of the core sent a table older than the one this node has, and "+
			"nothing is done because of it: "+
			"the member lags, or the core was restored from a backup",
			"revision", fresh.Revision, "known", old.Revision)
		return fmt.Errorf("the table is of revision %d, revision %d is known", fresh.Revision,
			old.Revision)
	}
	fresh.Complete = true
	if fresh.Cluster == 0 {
		fresh.Cluster = n.config.Cluster
	}
	f.live = true
	f.publish(old, old.replacedBy(fresh), true)
	n.reconciler.everything()
	return nil
}

// publish makes a table the current one, and keeps it on disk.
func (f *follower) publish(old, next *Table, whole bool) {
	n := f.node
	delta := diff(old, next)
	durable, known := delta, old
	if whole {
		known = newTable()
		durable = diff(known, next)
	}
	if err := cacheUpdate(n.config.Log, next, withoutState(durable, known), whole); err != nil {
		n.log.Warn("the partition table could not be kept on disk", "error", err)
	}
	// INVARIANT: not before it is on its way to the disk: a replica that is created because of it
	// is never found there without it.
	n.tables.publish(next)
	n.metrics.revision.Set(float64(next.Revision))
	for _, k := range delta.Keyspaces {
		n.reconciler.keyspaceChanged(k)
	}
	n.reconciler.partitionsChanged(delta)
}

// withoutState leaves out nodes of which only changed what is not worth keeping: whether they live,
// and their statistics.
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

// bareNode is what is worth keeping of a node: all but what changes while nothing happens to it. A
// field is kept unless it is named here, since a node that restarts is not told it again: the core
// goes on after the revision of what is on the disk.
func bareNode(n *clusterpb.Node) *clusterpb.Node {
	bare := proto.CloneOf(n)
	bare.Alive, bare.Stats, bare.AliveSinceUnixMs, bare.SilentSinceUnixMs = false, nil, 0, 0
	return bare
}
