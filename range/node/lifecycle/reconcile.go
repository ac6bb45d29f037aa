package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// createBatch bounds the replicas that are created with one sync.
	createBatch = 1000
	// reconcileRetry is the pause after a failure.
	reconcileRetry = 2 * time.Second
	// waitingCheck is the interval at which waiting partitions are checked without another reason.
	waitingCheck = 5 * time.Second
)

// Reconciler makes the replicas on this node those that the table lists: in one goroutine, from the
// present table, for the partitions that were named to it. It may be told of the same partition any
// number of times.
type Reconciler struct {
	node *Lifecycle
	due  *dueList

	disk     diskWork
	removals removalPace
	// refused are partitions that can never be created here, because a replica with that id was
	// removed.
	refused map[keys.PartitionID]keys.ReplicaID
}

func (r *Reconciler) init(n *Lifecycle) {
	r.node, r.due, r.disk.tasks = n, &n.due, &n.writing
	r.removals.init()
	r.disk.hangs = n.Metrics.Counter("replica_changes_stalled_total",
		"Times that creating or removing replicas had waited for the disk for 30 s.")
	r.refused = make(map[keys.PartitionID]keys.ReplicaID)
}

// Present looks at all partitions.
func (r *Reconciler) Present() { r.due.addAll() }

// PartitionsChanged looks at the partitions of an update that concern this node.
func (r *Reconciler) PartitionsChanged(u *clusterpb.TableUpdate) {
	for _, p := range u.Partitions {
		if r.node.ReplicaHere(p) != nil || r.node.Replicas.Get(keys.PartitionID(p.Id)) != nil {
			r.due.add(keys.PartitionID(p.Id))
		}
	}
	for _, id := range u.RemovedPartitions {
		if id := keys.PartitionID(id); r.node.Replicas.Get(id) != nil ||
			r.node.BrokenBy(id) != nil {
			r.due.add(id)
		}
	}
	r.due.wake.Send()
}

// SpansChanged looks again at the partitions that wait for a span.
func (r *Reconciler) SpansChanged() { r.due.spansChanged() }

// KeyspaceChanged applies a keyspace's settings to its replicas.
func (r *Reconciler) KeyspaceChanged(k *clusterpb.Keyspace) {
	n := r.node
	id := keys.KeyspaceID(k.Id)
	for _, h := range n.Replicas.All() {
		if h.Listed.Load().GetKeyspace() == k.Id {
			n.SetKeyspace(h.Replica, id)
		}
	}
}

// Pending returns how many partitions are to be created or removed, as far as is known.
func (r *Reconciler) Pending() int { return r.due.pending() }

func (r *Reconciler) run(ctx context.Context) {
	ticker := time.NewTicker(waitingCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.due.wake:
		case <-r.removals.timer.C:
		case <-ticker.C:
			r.SpansChanged()
			continue
		}
		for more := true; more; {
			failed := false
			if more, failed = r.step(ctx); failed && backoff.Sleep(ctx, reconcileRetry) != nil {
				return
			}
		}
	}
}

// step does what is due. more is set if something is left to do, failed if that is because of a
// failure.
func (r *Reconciler) step(ctx context.Context) (more, failed bool) {
	r.due.addRested(&r.removals)
	create, remove, broken := r.take()
	if len(create)+len(remove)+len(broken) > 0 {
		r.node.Logger.Info("replicas change", "create", len(create), "remove", len(remove),
			"remove_broken", len(broken))
	}
	for len(create) > 0 && ctx.Err() == nil {
		n := min(len(create), createBatch)
		failed = r.Create(ctx, create[:n]) || failed
		create = create[n:]
		r.due.worked(n)
	}
	remove, err := r.pace(ctx, remove)
	if err != nil && ctx.Err() == nil {
		r.node.Logger.Error("closing replicas that are to be removed takes long", "error", err)
	}
	now, later := remove[:min(len(remove), removeBatch)], remove[min(len(remove), removeBatch):]
	if len(now) > 0 && ctx.Err() == nil {
		var postponed []*hosted.Replica // which the piece may still be writing to if it is not over
		err := r.disk.do(ctx, func() (err error) {
			postponed, err = r.node.remove(ctx, now)
			return err
		})
		if err == nil {
			r.removals.removed(time.Now())
			later, failed = append(later, postponed...), failed || len(postponed) > 0
		} else {
			if ctx.Err() == nil {
				r.node.Logger.Error("removing replicas failed; it will be tried again", "error", err)
			}
			later, failed = remove, true
		}
	}
	for _, h := range later {
		r.due.add(h.ID)
	}
	if len(broken) > 0 && ctx.Err() == nil {
		err := r.disk.do(ctx, func() error { return r.node.removeBroken(ctx, broken) })
		failed = r.brokenFailed(ctx, broken, err) || failed
	}
	return r.due.idle() && ctx.Err() == nil, failed
}

// brokenFailed schedules failed removals again.
func (r *Reconciler) brokenFailed(ctx context.Context, broken []brokenReplica, err error) bool {
	if err == nil {
		return false
	}
	for _, b := range broken {
		r.due.add(b.identity.Group)
	}
	if ctx.Err() == nil {
		r.node.Logger.Error("removing replicas that do not open failed; it will be tried again",
			"error", err)
	}
	return true
}

// pace returns those replicas whose turn it is to be removed from the disk. The others are closed,
// and come again. On a full disk nothing waits.
func (r *Reconciler) pace(ctx context.Context, gone []*hosted.Replica) (turn []*hosted.Replica,
	err error) {
	now := time.Now()
	if len(gone) == 0 || r.node.DiskFull() || !r.removals.late(now, len(gone)) {
		return gone, nil
	}
	err = r.disk.do(ctx, func() error {
		r.node.Retire(gone)
		return nil
	})
	r.removals.rest(now, gone)
	return nil, err
}

// take compares the partitions that are due with the replicas here.
func (r *Reconciler) take() (create []*clusterpb.Partition, remove []*hosted.Replica,
	broken []brokenReplica) {
	n := r.node
	due, all := r.due.take()
	t, held := n.Table.Load(), n.Replicas.All()
	look := func(id keys.PartitionID, p *clusterpb.Partition) {
		h := held[id]
		switch {
		case h == nil && p != nil:
			self := n.ReplicaHere(p)
			if b := n.brokenBefore(p, self); b != nil && t.Complete {
				broken = append(broken, *b)
			} else if self != nil && (n.Merged.SubsumedBy(id) != nil || r.waits(id, p)) {
				// The other replica makes it by a split, or has to be removed first; or it is a
				// part of another partition, which the core does not know yet.
			} else if self != nil &&
				r.refused[id] != keys.ReplicaID(self.Replica) && n.BrokenBy(id) == nil {
				create = append(create, p)
			}
		case h == nil && t.Complete:
			if x, found := n.broken.Load(id); found {
				if b := x.(brokenReplica); t.Dropped(b.keyspace()) || n.brokenLeftOver(t, b) {
					broken = append(broken, b)
				} else {
					r.due.waiting.add(id)
				}
			}
		case h != nil && p == nil:
			// INVARIANT: its keyspace was dropped, or the table proves that another partition has
			// consumed it. That a table lacks the partition proves nothing: it may have split off
			// from another one and not be known yet.
			switch {
			case h.Removal.TakenOver.Load():
				remove = append(remove, h)
			case !t.Complete || h.Replica.SubsumedBy() != nil:
			case t.Dropped(keys.KeyspaceID(h.Listed.Load().GetKeyspace())):
				remove = append(remove, h)
			case n.leftOver(t, h):
				h.Removal.Moved.Store(true)
				remove = append(remove, h)
			default:
				// It may be an orphan when another replica has gone, or has come to what the table
				// lists.
				r.due.waiting.add(id)
			}
		case h != nil && n.namedOut(h, p):
			h.Removal.Moved.Store(true)
			remove = append(remove, h)
		case h != nil:
			n.listed(h, p)
		}
	}
	if all {
		for _, p := range t.Partitions() {
			look(keys.PartitionID(p.Id), p)
		}
		for id := range held {
			if p := t.Partition(id); p == nil {
				look(id, nil)
			}
		}
		n.broken.Range(func(id, _ any) bool {
			if id := id.(keys.PartitionID); t.Partition(id) == nil {
				look(id, nil)
			}
			return true
		})
	} else {
		for id := range due {
			look(id, t.Partition(id))
		}
	}
	r.due.begin(len(create) + len(remove) + len(broken))
	LeftFirst(remove)
	return create, remove, broken
}

// LeftFirst sorts replicas that are to be closed one after the other: when a keyspace is dropped
// while partitions merge, no replica must miss the right neighbour that it consumes.
func LeftFirst(gone []*hosted.Replica) {
	slices.SortFunc(gone, func(a, b *hosted.Replica) int {
		p, q := a.Replica.Descriptor(), b.Replica.Descriptor()
		return cmp.Or(cmp.Compare(p.GetKeyspace(), q.GetKeyspace()),
			cmp.Compare(p.GetHash(), q.GetHash()), bytes.Compare(p.GetStart(), q.GetStart()))
	})
}

// waits reports whether a replica has to wait for a part of its span, and schedules another look
// for when that may be free.
func (r *Reconciler) waits(id keys.PartitionID, p *clusterpb.Partition) bool {
	span := keys.PartitionSpan(p)
	if r.node.Shared.Spans.Overlapping(id, span) == 0 {
		return false
	}
	// Again: the span may have become free before the partition was added to those that wait.
	r.due.waiting.add(id)
	other := r.node.Shared.Spans.Overlapping(id, span)
	if other != 0 {
		r.due.add(other) // it may be an orphan
	}
	return other != 0
}

// namedOut reports whether a descriptor of the table is later than any that this replica knows of,
// and does not name the replica.
func (n *Lifecycle) namedOut(h *hosted.Replica, p *clusterpb.Partition) bool {
	for _, r := range p.GetReplicas() {
		if r.GetNode() == uint64(n.ID) && r.GetReplica() == uint64(h.Self) {
			return false
		}
	}
	return keys.CompareEpochs(p, h.Replica.Descriptor()) >= 0 &&
		keys.CompareEpochs(p, h.Listed.Load()) >= 0
}

// listed notes a descriptor of a partition that is here. Changes that a descriptor with a higher
// epoch makes to the replica itself come through the partition's own log, from its leader; listed
// only follows which replica is to lead.
func (n *Lifecycle) listed(h *hosted.Replica, p *clusterpb.Partition) {
	if old := h.Listed.Load(); old == p || keys.CompareEpochs(p, old) < 0 {
		return
	}
	h.Listed.Store(p)
	n.Leaders.Relisted(h)
}

// Create creates replicas with one sync, opens them, and starts campaigns of those that are to
// lead. It returns true if some have to be tried again.
func (r *Reconciler) Create(ctx context.Context, partitions []*clusterpb.Partition) (again bool) {
	n := r.node
	identities := make([]raftlog.Identity, 0, len(partitions))
	for _, p := range partitions {
		if !n.openings.begin(keys.PartitionID(p.Id), n.Replicas) {
			r.due.add(keys.PartitionID(p.Id)) // the next look finds it open
			again = true
			continue
		}
		defer n.openings.end(keys.PartitionID(p.Id))
		id, err := n.IdentityOf(p)
		if err != nil {
			n.Logger.Error("a replica cannot be created", "partition", keys.PartitionID(p.Id), "error",
				err)
			continue
		}
		identities = append(identities, id)
	}
	written, failed := r.write(ctx, identities)
	again = again || failed
	opened := n.openAll(written, true, func(id raftlog.Identity, err error) {
		n.Logger.Error("a new replica does not open; it will be tried again", "partition", id.Group,
			"error", err)
		r.due.add(id.Group)
		again = true
	})
	n.Replicas.Change(opened, nil)
	for _, h := range opened {
		// Again, now that they are registered: the keyspace may have changed meanwhile.
		keyspace := keys.KeyspaceID(h.Listed.Load().GetKeyspace())
		n.SetKeyspace(h.Replica, keyspace)
	}
	// Changes of the table were not applied to replicas that were not registered yet.
	for _, p := range partitions {
		if id := keys.PartitionID(p.Id); n.Table.Load().Partition(id) != p {
			r.due.add(id)
			r.due.wake.Send()
		}
	}
	n.created.Add(float64(len(opened)))
	for _, h := range opened {
		switch {
		case len(h.Identity.Voters) == 0: // the replica is to be filled
		case h.PrefersSelf():
			n.elections.Add(h)
		default:
			n.elections.AddLater(h)
		}
	}
	return again
}

// write writes identities, all with one sync if none of them is refused.
func (r *Reconciler) write(ctx context.Context,
	identities []raftlog.Identity) (written []raftlog.Identity, again bool) {
	n := r.node
	if len(identities) == 0 {
		return nil, false
	}
	create := func(ids ...raftlog.Identity) error {
		return r.disk.do(ctx, func() error { return n.Host.Log().Create(ids...) })
	}
	err := create(identities...)
	if err == nil {
		return identities, false
	}
	for i, id := range identities {
		if errors.Is(err, errLogHangs) || ctx.Err() != nil {
			for _, id := range identities[i:] {
				r.due.add(id.Group)
			}
			n.Logger.Error("creating replicas waits for the log; it will be tried again", "replicas",
				len(identities)-i, "error", err)
			return written, true
		}
		switch err = create(id); {
		case err == nil:
			written = append(written, id)
		case errors.Is(err, raftlog.ErrRemoved):
			r.refused[id.Group] = id.Replica
			n.Logger.Error("the table lists a replica that was removed from this node; it is not "+
				"created again", "partition", id.Group, "error", err)
		default:
			n.Logger.Error("creating a replica failed; it will be tried again", "partition", id.Group,
				"error", err)
			r.due.add(id.Group)
			again = true
		}
	}
	return written, again
}
