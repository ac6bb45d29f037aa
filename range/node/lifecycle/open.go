package lifecycle

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// openProgress is the interval at which a long opening reports its progress.
const openProgress = 5 * time.Second

// Reopen opens all replicas that the raft log knows, without asking the core.
func (n *Lifecycle) Reopen() error {
	began := time.Now()
	identities, err := n.Host.Log().Identities()
	if err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	marked, err := ReadRemovals(n.Log)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	var live, unfinished []raftlog.Identity
	for _, id := range identities {
		switch {
		case marked[id.Group]:
			unfinished = append(unfinished, id)
		case !id.Removed:
			live = append(live, id)
		}
	}
	if err := n.resumeRemoval(unfinished); err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	if live, err = n.Children.restore(identities, live); err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	opened := n.openAll(live, false, func(id raftlog.Identity, err error) {
		// The others serve; this replica needs an operator.
		n.Logger.Error("A REPLICA DOES NOT OPEN and is left alone; its partition goes on with the "+
			"other replicas",
			"partition", id.Group, "replica", id.Replica, "error", err)
		n.setBroken(id, err)
	})
	n.Replicas.Change(opened, nil)
	if len(live) > 0 {
		n.Logger.Info("replicas are open", "replicas", len(opened), "broken", len(live)-len(opened),
			"took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// openAll opens replicas in parallel, and calls failed, one call at a time, for those that do not
// open.
func (n *Lifecycle) openAll(ids []raftlog.Identity, created bool,
	failed func(raftlog.Identity, error)) []*hosted.Replica {
	opened := make([]*hosted.Replica, len(ids))
	errs := make([]error, len(ids))
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range min(len(ids), 2*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				opened[i], errs[i] = n.open(ids[i], created)
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		workers.Wait()
		close(finished)
	}()
	timer := time.NewTicker(openProgress)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-timer.C:
			n.Logger.Info("opening replicas", "open", done.Load(), "of", len(ids))
		case <-finished:
			waiting = false
		}
	}
	kept := opened[:0]
	for i, h := range opened {
		if errs[i] != nil {
			failed(ids[i], errs[i])
			continue
		}
		kept = append(kept, h)
	}
	return kept
}

// beginOpening claims the opening of a partition's replica, which a split and the table may both
// want at once; false if the replica is open, or is being opened. Otherwise endOpening follows when
// it is registered.
func (n *Lifecycle) beginOpening(id keys.PartitionID) bool {
	if _, other := n.opening.LoadOrStore(id, make(chan struct{})); other {
		return false
	}
	if n.Replicas.Get(id) != nil {
		n.endOpening(id)
		return false
	}
	return true
}

// endOpening reports the end of the opening to those that wait for it.
func (n *Lifecycle) endOpening(id keys.PartitionID) {
	if over, ok := n.opening.LoadAndDelete(id); ok {
		close(over.(chan struct{}))
	}
}

// brokenReplica is a replica that is on disk and does not open.
type brokenReplica struct {
	identity raftlog.Identity
	why      error
}

// keyspace returns that of its partition; 0 if its identity does not say.
func (b brokenReplica) keyspace() keys.KeyspaceID {
	p := &clusterpb.Partition{}
	if proto.Unmarshal(b.identity.Descriptor, p) != nil {
		return 0
	}
	return keys.KeyspaceID(p.Keyspace)
}

// setBroken notes a replica that is on disk and does not open.
func (n *Lifecycle) setBroken(id raftlog.Identity, err error) {
	n.broken.Store(id.Group, brokenReplica{id, err})
	n.brokenReplicas.Inc()
	// INVARIANT: as long as the broken replica is there, its span belongs to it: the removal of the
	// broken replica would remove the data of another one with the same span.
	d, err := n.heldBy(id)
	if err != nil {
		n.Logger.Warn("what a replica holds that does not open cannot be told", "partition", id.Group,
			"error", err)
	}
	if d != nil {
		n.Shared.Spans.Own(d)
	}
}

// heldBy returns the descriptor of the data of a replica that does not open; nil if it has no known
// data.
func (n *Lifecycle) heldBy(id raftlog.Identity) (*clusterpb.Partition, error) {
	r, found, err := storage.ReadRecorded(n.State, id.Group)
	if err == nil {
		if !found {
			return nil, nil
		}
		return r.Descriptor, nil
	}
	span, err := n.loneSpan(id)
	if span == nil || err != nil {
		return nil, err
	}
	d := &clusterpb.Partition{}
	return d, proto.Unmarshal(id.Descriptor, d)
}

// Failed returns the partitions of which a replica is on disk and serves nothing, in order.
func (n *Lifecycle) Failed() (failed []uint64) {
	n.broken.Range(func(id, _ any) bool {
		failed = append(failed, uint64(id.(keys.PartitionID)))
		return true
	})
	for id, h := range n.Replicas.All() {
		if h.Group.Failed() != nil {
			failed = append(failed, uint64(id))
		}
	}
	slices.Sort(failed)
	return failed
}

// BrokenBy returns why a replica that is on disk does not open; nil if it opens, or there is none.
func (n *Lifecycle) BrokenBy(id keys.PartitionID) error {
	x, _ := n.broken.Load(id)
	b, _ := x.(brokenReplica)
	return b.why
}

// brokenBefore returns a replica that does not open and that a later descriptor does not name. self
// is the descriptor's replica on this node, nil if there is none.
func (n *Lifecycle) brokenBefore(p *clusterpb.Partition, self *clusterpb.Replica) *brokenReplica {
	x, found := n.broken.Load(keys.PartitionID(p.GetId()))
	if !found {
		return nil
	}
	b := x.(brokenReplica)
	created := &clusterpb.Partition{}
	if self != nil && keys.ReplicaID(self.Replica) == b.identity.Replica ||
		proto.Unmarshal(b.identity.Descriptor, created) != nil ||
		keys.CompareEpochs(created, p) >= 0 {
		return nil
	}
	return &b
}
