package lifecycle

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

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

// loneSpan returns the span with which a replica was created whose descriptor cannot be read; nil
// if a part of it belongs to another partition, which has split off from it.
func (n *Lifecycle) loneSpan(id raftlog.Identity) (*keys.Span, error) {
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(id.Descriptor, p); err != nil {
		return nil, fmt.Errorf("partition %s: its descriptor in the raft log: %w", id.Group, err)
	}
	span, lone := keys.PartitionSpan(p), len(id.Voters) > 0
	err := storage.EachRecorded(n.State,
		func(other keys.PartitionID, r storage.Recorded, err error) {
			if err == nil && other != id.Group && keys.PartitionSpan(r.Descriptor).Overlaps(span) {
				lone = false
			}
		})
	if !lone {
		n.Logger.Warn("what a replica held cannot be told, and only what is kept by its id is removed",
			"partition", id.Group)
		return nil, err
	}
	return &span, err
}
