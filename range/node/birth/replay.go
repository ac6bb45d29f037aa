package birth

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Directory is a node's logs and state when no replica is open. Open opens a replica whose group
// only applies.
type Directory struct {
	Log   *raftlog.Log
	State *engine.State
	Open  func(raftlog.Identity) (*replica.Replica, error)
}

// Restore makes the bases again that replicas have lost, and returns how many there were. It calls
// failed for replicas that cannot have it back; those must not be opened.
//
// INVARIANT: it comes before any replica opens, and before the network does. A replica without its
// base would vote and append, and have nothing of what its entries were made on.
func (d *Directory) Restore(identities []raftlog.Identity,
	failed func(raftlog.Identity, error)) (restored int) {
	w := restorer{Directory: d, at: make(map[keys.PartitionID]raftlog.Identity, len(identities))}
	for _, id := range identities {
		w.at[id.Group] = id
	}
	for _, id := range identities {
		lacks, err := w.lacks(id)
		if err == nil && !lacks {
			continue
		}
		if err == nil {
			err = w.restore(id, 0)
		}
		if err != nil {
			failed(id, err)
			continue
		}
		restored++
	}
	return restored
}

type restorer struct {
	*Directory
	at map[keys.PartitionID]raftlog.Identity
}

// lacks says whether a replica's base is lost.
func (w *restorer) lacks(id raftlog.Identity) (bool, error) {
	if _, born := IsBorn(id); !born {
		return false, nil
	}
	_, recorded, err := replica.ReadRecorded(w.State, id.Group)
	return !recorded, err
}

// restore applies the parent's log up to the split. The parent may have lost its own base.
func (w *restorer) restore(id raftlog.Identity, depth int) error {
	child, _ := IsBorn(id)
	parent, found := w.at[keys.PartitionID(child.SplitFrom)]
	if !found || parent.Removed || depth > len(w.at) {
		return fmt.Errorf("%w: partition %d is not here any more", replica.ErrNoBase, child.SplitFrom)
	}
	lacks, err := w.lacks(parent)
	if err == nil && lacks {
		err = w.restore(parent, depth+1)
	}
	if err == nil {
		err = w.replay(parent, child.SplitIndex)
	}
	if err == nil {
		lacks, err = w.lacks(id)
		if err == nil && lacks {
			err = fmt.Errorf("%w: entry %d of partition %d did not make it", replica.ErrNoBase,
				child.SplitIndex, child.SplitFrom)
		}
	}
	return err
}

// replay applies the entries of a partition's log up to an index, which is committed: a replica here
// was made by applying it.
func (w *restorer) replay(id raftlog.Identity, index uint64) error {
	r, err := w.Open(id)
	if err != nil {
		return err
	}
	defer r.Close()
	applied, term := r.Applied()
	configuration := r.Configuration()
	g, err := w.Log.OpenGroup(id, func() raftlog.Applied {
		return raftlog.Applied{Index: applied, Term: term, Configuration: configuration.ConfState()}
	})
	if err != nil {
		return err
	}
	defer w.Log.CloseGroup(g)
	var entries []group.Entry
	size := 0
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		err := r.Apply(entries)
		entries, size = nil, 0
		return err
	}
	if err := EachEntry(g, applied, index, func(e group.Entry) error {
		entries, size = append(entries, e), size+len(e.Data)
		if e.Change || size > replayBytes {
			return flush()
		}
		return nil
	}); err != nil {
		return fmt.Errorf("partition %s: %w", id.Group, err)
	}
	return flush()
}

// replayBytes is about how much is applied at once.
const replayBytes = 1 << 20

// Orphans are the replicas whose base is in the state and which have no log: a crash came before
// that was made. node is this node; identities are all that there are, tombstones too.
func (d *Directory) Orphans(node uint64, identities []raftlog.Identity) ([]raftlog.Identity, error) {
	known := make(map[keys.PartitionID]bool, len(identities))
	for _, id := range identities {
		known[id.Group] = true
	}
	var found []raftlog.Identity
	err := replica.EachRecorded(d.State, func(id keys.PartitionID, r replica.Recorded, err error) {
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
