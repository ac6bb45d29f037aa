package splitrecovery

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Directory has a node's logs and state while no replica is open. Open opens a replica whose group
// only applies.
type Directory struct {
	Log   *raftlog.Log
	State *engine.State
	Open  func(raftlog.Identity) (*replica.Replica, error)
	// at are the replicas by partition; consumed are those that applied entries have merged into
	// others.
	at       map[keys.PartitionID]raftlog.Identity
	subsumed []raftlog.Identity
}

// Restore makes the lost bases of replicas again, and returns how many there were. It calls failed
// for replicas whose base cannot be made; those must not be opened. It also returns the replicas
// that it has merged into others on the way, which must not be opened either, and are to be buried.
//
// INVARIANT: it comes before any replica opens, and before the network does. A replica without its
// base would vote and append, and have nothing of what its entries were evaluated on.
func (d *Directory) Restore(identities []raftlog.Identity, failed func(raftlog.Identity, error)) (
	restored int, consumed []raftlog.Identity) {
	d.Hold(identities)
	for _, id := range identities {
		if _, there := d.at[id.Group]; !there {
			continue // the replica was merged into another one
		}
		lacks, err := d.lacks(id)
		if err == nil && !lacks {
			continue
		}
		if err == nil {
			err = d.restore(id, 0)
		}
		if err != nil {
			failed(id, err)
			continue
		}
		restored++
	}
	return restored, d.subsumed
}

// Hold sets the replicas that are here, for Right. Restore sets them too.
func (d *Directory) Hold(identities []raftlog.Identity) {
	d.at = make(map[keys.PartitionID]raftlog.Identity, len(identities))
	for _, id := range identities {
		d.at[id.Group] = id
	}
}

// Subsumed returns the replicas that applied entries have merged into others. They are to be
// buried.
func (d *Directory) Subsumed() []raftlog.Identity { return d.subsumed }

// IsSubsumed reports whether an applied entry has merged a replica into another one.
func (d *Directory) IsSubsumed(id raftlog.Identity) bool {
	_, there := d.at[id.Group]
	return !there
}

// lacks reports whether a replica's base is lost.
func (d *Directory) lacks(id raftlog.Identity) (bool, error) {
	if _, child := IsChild(id); !child {
		return false, nil
	}
	_, recorded, err := storage.ReadRecorded(d.State, id.Group)
	return !recorded, err
}

// restore applies the parent's log up to the split. The parent may have lost its own base, and the
// replica may be merged into another one on the way.
func (d *Directory) restore(id raftlog.Identity, depth int) error {
	child, _ := IsChild(id)
	parent, found := d.at[keys.PartitionID(child.SplitFrom)]
	if !found || parent.Removed || depth > len(d.at) {
		return fmt.Errorf("%w: partition %d is not here any more", replica.ErrNoBase, child.SplitFrom)
	}
	lacks, err := d.lacks(parent)
	if err == nil && lacks {
		err = d.restore(parent, depth+1)
	}
	if err == nil {
		err = d.replay(parent, child.SplitIndex)
	}
	if _, there := d.at[id.Group]; err == nil && there {
		lacks, err = d.lacks(id)
		if err == nil && lacks {
			err = fmt.Errorf("%w: entry %d of partition %d did not make it", replica.ErrNoBase,
				child.SplitIndex, child.SplitFrom)
		}
	}
	return err
}

// Applied returns the index and the term of the last entry that is in the state of a replica, as far
// as Restore can make the state again: a replica whose base is lost begins where its partition split
// off, if the parent's log reaches the split. Hold was called.
func (d *Directory) Applied(id raftlog.Identity) (raftlog.Applied, error) {
	return d.appliedOf(id, 0)
}

func (d *Directory) appliedOf(id raftlog.Identity, depth int) (raftlog.Applied, error) {
	recorded, found, err := storage.ReadRecorded(d.State, id.Group)
	child, isChild := IsChild(id)
	if err != nil || found || !isChild {
		return raftlog.Applied{Index: recorded.Index, Term: recorded.Term}, err
	}
	parent, found := d.at[keys.PartitionID(child.SplitFrom)]
	if !found || parent.Removed || depth > len(d.at) {
		return raftlog.Applied{}, nil
	}
	before, err := d.appliedOf(parent, depth+1)
	if err != nil || before.Index >= child.SplitIndex {
		return raftlog.Applied{}, err // the split is applied, and has not made the base
	}
	g, err := d.Log.OpenGroup(parent, func() raftlog.Applied { return before })
	if err != nil {
		return raftlog.Applied{}, err
	}
	defer d.Log.CloseGroup(g)
	last, err := g.LastIndex()
	if err != nil || last < child.SplitIndex {
		return raftlog.Applied{}, err
	}
	return raftlog.Applied{Index: reshape.ChildIndex, Term: reshape.ChildTerm}, nil
}

// replay applies the entries of a partition's log up to an index. The index is committed: a replica
// here was made by applying it.
func (d *Directory) replay(id raftlog.Identity, index uint64) error {
	r, err := d.Open(id)
	if err != nil {
		return err
	}
	defer r.Close()
	applied, _ := r.Applied()
	return d.entries(id, r, applied, index, r.Apply)
}

// entries calls do for pieces of a replica's log.
func (d *Directory) entries(id raftlog.Identity, r *replica.Replica, after, last uint64,
	do func([]group.Entry) error) error {
	applied, term := r.Applied()
	configuration := r.Configuration()
	g, err := d.Log.OpenGroup(id, func() raftlog.Applied {
		return raftlog.Applied{Index: applied, Term: term, Configuration: configuration.ConfState()}
	})
	if err != nil {
		return err
	}
	defer d.Log.CloseGroup(g)
	if err := EachPiece(g, after, last, do); err != nil {
		return fmt.Errorf("partition %s: %w", id.Group, err)
	}
	return nil
}

// Right returns the replica of a partition that another one consumes while its log is replayed; see
// replica.Node.Right.
func (d *Directory) Right(right *clusterpb.Partition) (replica.Right, error) {
	id, found := d.at[keys.PartitionID(right.GetId())]
	if !found || id.Removed {
		return nil, fmt.Errorf("%w: partition %d is not here any more",
			replica.ErrNoBase, right.GetId())
	}
	lacks, err := d.lacks(id)
	if err == nil && lacks {
		err = d.restore(id, 0)
	}
	if err != nil {
		return nil, err
	}
	r, err := d.Open(id)
	if err != nil {
		return nil, err
	}
	return &idleRight{d, id, r}, nil
}

// idleRight is a replica without a group that is being merged into another one.
type idleRight struct {
	directory *Directory
	id        raftlog.Identity
	replica   *replica.Replica
}

func (r *idleRight) Replica() *replica.Replica { return r.replica }

func (r *idleRight) Entries(after, last uint64, do func([]group.Entry) error) error {
	return r.directory.entries(r.id, r.replica, after, last, do)
}

func (r *idleRight) Subsumed(*clusterpb.Partition) {
	d := r.directory
	delete(d.at, r.id.Group)
	d.subsumed = append(d.subsumed, r.id)
	_ = r.replica.Close()
}

// Orphans returns the replicas whose base is in the state and which have no log: a crash came
// before the log was made. node is this node; identities are all that there are, including
// tombstones.
func (d *Directory) Orphans(node uint64, identities []raftlog.Identity) (
	[]raftlog.Identity, error) {
	known := make(map[keys.PartitionID]bool, len(identities))
	for _, id := range identities {
		known[id.Group] = true
	}
	var found []raftlog.Identity
	err := storage.EachRecorded(d.State, func(id keys.PartitionID, r storage.Recorded, err error) {
		self := replicaOn(r.Descriptor, node)
		if err != nil || known[id] || r.Descriptor.SplitFrom == 0 || self == nil {
			return
		}
		if orphan, err := Identity(r.Descriptor, keys.ReplicaID(self.Replica)); err == nil {
			found = append(found, orphan)
		}
	})
	return found, err
}

func replicaOn(p *clusterpb.Partition, node uint64) *clusterpb.Replica {
	for _, r := range p.GetReplicas() {
		if r.GetNode() == node {
			return r
		}
	}
	return nil
}
