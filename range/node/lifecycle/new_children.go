package lifecycle

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A replica of a child is made when the parent's replica here applies the split: its base is in the
// state then, its log is made, and it is opened. The replica beside the parent's leader is to lead
// (range/node, new_child.go).

// Children makes the replicas of children of splits.
type Children struct {
	node *Lifecycle
	// replaying is set while no replica is open, and none may open.
	replaying bool
	directory *splitrecovery.Directory
	mu        struct {
		sync.Mutex
		// unlisted are replicas of partitions that the table does not list yet.
		unlisted map[*hosted.Replica]struct{}
	}
}

func (b *Children) init(n *Lifecycle) {
	b.node = n
	b.mu.unlisted = make(map[*hosted.Replica]struct{})
}

// State decides what a split does for the child here; see replica.Node.ChildState.
func (b *Children) State(child *clusterpb.Partition, self keys.ReplicaID) (reshape.ChildState,
	error) {
	return splitrecovery.StateOf(b.node.Host.Log(), b.node.State, child, self)
}

// Split opens the child of a split that was applied here; see replica.Node.Split.
func (b *Children) Split(child *clusterpb.Partition, self keys.ReplicaID, how reshape.ChildState,
	leads bool) {
	n := b.node
	if b.replaying {
		return
	}
	if parent := n.Host.Group(keys.PartitionID(child.SplitFrom)); parent != nil {
		parent.ForgetBeginning()
	}
	defer n.due.spansChanged()
	if how != reshape.Created {
		return
	}
	if err := b.open(child, self, leads); err != nil && !n.closing() {
		n.Logger.Error("a partition that has split off does not open here; the next start, or the "+
			"core's table, will have it opened", "partition", child.Id, "error", err)
		n.due.add(keys.PartitionID(child.Id))
	}
}

func (b *Children) open(child *clusterpb.Partition, self keys.ReplicaID, leads bool) error {
	n := b.node
	id, err := splitrecovery.Identity(child, self)
	if err != nil {
		return err
	}
	if !n.openings.begin(id.Group, n.Replicas) {
		return nil // the core knows of it already, and the table has it opened
	}
	defer n.openings.end(id.Group)
	if err := n.Host.Log().Create(id); err != nil {
		return err
	}
	h, err := n.open(id, true)
	if err != nil {
		return err
	}
	h.Split.NewChild.Store(true)
	h.Split.Campaigning.Store(leads)
	n.Replicas.Change([]*hosted.Replica{h}, nil)
	// Again, now that the replica is registered: the keyspace may have changed meanwhile.
	n.SetKeyspace(h.Replica, keys.KeyspaceID(child.Keyspace))
	n.splitReplicas.Inc()
	// This node may have been so far behind that a later descriptor does not name the replica.
	n.due.add(h.ID)
	n.due.wake.Send()
	if !leads {
		n.elections.AddLater(h)
		return nil
	}
	n.rooms.Campaign(h)
	return nil
}

// restore repairs what a crash has left of splits, before anything opens. all are the identities on
// disk, live those of replicas; it returns those that can be opened.
func (b *Children) restore(all, live []raftlog.Identity) ([]raftlog.Identity, error) {
	n := b.node
	b.replaying = true
	defer func() { b.replaying = false }()
	d := &splitrecovery.Directory{Log: n.Host.Log(), State: n.State, Open: n.openIdle}
	b.directory = d
	defer func() { b.directory = nil }()
	live, buried, err := d.Bury(live)
	if err != nil {
		return nil, err
	}
	lost := make(map[keys.PartitionID]bool)
	restored, consumed := d.Restore(live, func(id raftlog.Identity, err error) {
		lost[id.Group] = true
		n.Logger.Error("A REPLICA DOES NOT OPEN and is left alone; its partition goes on with the "+
			"other replicas", "partition", id.Group, "replica", id.Replica, "error", err)
		n.setBroken(id, err)
	})
	if len(consumed) > 0 {
		// INVARIANT: the merges are durable before the logs of the consumed replicas are removed.
		if err := n.State.Flush(); err != nil {
			return nil, err
		}
		if err := n.Host.Log().Remove(consumed...); err != nil {
			return nil, err
		}
		for _, id := range consumed {
			lost[id.Group] = true
		}
	}
	if buried+len(consumed) > 0 {
		n.Logger.Info("the logs of replicas that were merged into others are removed", "replicas",
			buried+len(consumed))
	}
	orphans, err := d.Orphans(uint64(n.ID), all)
	if err != nil {
		return nil, err
	}
	if err := n.Host.Log().Create(orphans...); err != nil {
		return nil, err
	}
	if restored+len(orphans) > 0 {
		n.Logger.Info("splits that a crash had cut through are whole", "bases", restored, "logs",
			len(orphans))
	}
	removed, err := d.Sweep()
	if err != nil {
		return nil, err
	}
	if removed > 0 {
		n.Logger.Info("what was in no partition's span is removed", "pieces", removed)
	}
	kept := make([]raftlog.Identity, 0, len(live)+len(orphans))
	for _, id := range live {
		if !lost[id.Group] {
			kept = append(kept, id)
		}
	}
	return append(kept, orphans...), nil
}

// openIdle opens a replica that only applies.
func (n *Lifecycle) openIdle(id raftlog.Identity) (*replica.Replica, error) {
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(id.Descriptor, p); err != nil {
		return nil, err
	}
	return replica.New(replica.Config{Partition: p, ReplicaID: id.Replica, State: n.State,
		Group: splitrecovery.Idle{}, Node: n.Shared, Empty: len(id.Voters) == 0, GCWindow: -1})
}

// noticed notes a replica that was opened, if its partition has split off and the table does not
// list it yet.
func (b *Children) noticed(h *hosted.Replica) {
	if h.Listed.Load().GetSplitFrom() == 0 || b.node.Table.Load().Partition(h.ID) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.unlisted[h] = struct{}{}
}

// forget drops a replica that was removed.
func (b *Children) forget(h *hosted.Replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.unlisted, h)
}

// SplitOff returns the partitions here that have split off from a partition, directly or
// indirectly, and that the table lacks.
func (b *Children) SplitOff(parent keys.PartitionID) (found []*clusterpb.Partition) {
	t := b.node.Table.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	from := map[uint64]bool{uint64(parent): true}
	for more := true; more; {
		more = false
		for h := range b.mu.unlisted {
			d := h.Replica.Descriptor()
			switch {
			case h.Removed.Load() || h.Replica.SubsumedBy() != nil || t.Partition(h.ID) != nil:
				delete(b.mu.unlisted, h)
			case from[d.GetSplitFrom()] && !from[d.GetId()] && d.GetMembership() != 0 &&
				len(found) < maxSplitOff:
				from[d.GetId()], more = true, true
				found = append(found, d)
			}
		}
	}
	return found
}

// maxSplitOff bounds the partitions in a report.
const maxSplitOff = 64
