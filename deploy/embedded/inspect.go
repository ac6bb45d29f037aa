package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// What tests and debugging look at, and push, inside a server; nothing of the server itself uses
// it.

// ReplicaState is one replica of a partition, as it is on this server at the moment.
type ReplicaState struct {
	Partition, Replica, Node uint64
	// Leader is the replica that leads as far as this one knows, 0 if it knows none; Leads says
	// that it is this one.
	Leader, Term uint64
	Leads        bool
	// Leased says that its leader lease, of the term LeaseTerm, stands at this moment.
	Leased    bool
	LeaseTerm uint64
	Applied   uint64
	// Intents is how many keys are locked by transactions that write them, by what this replica has
	// applied.
	Intents int
	// FrozenFor is the left neighbour for which the partition is frozen, by what this replica has
	// applied; 0: it is not.
	FrozenFor uint64
	// Failed is why the replica does nothing any more.
	Failed error
	// Peers are the ids of all replicas of the partition.
	Peers []uint64
}

// ErrNoReplica is returned for a partition that this server has no replica of.
var ErrNoReplica = errors.New("no replica here")

// NodeID is the id of the data node, 0 before it has one.
func (s *Server) NodeID() uint64 { return s.node.id.Load() }

// Replicas returns the state of all replicas on this server.
func (s *Server) Replicas() []ReplicaState {
	var all []ReplicaState
	n := s.node.node()
	if n == nil {
		return nil
	}
	n.Inspect(func(id keys.PartitionID, x *replica.Replica, g *host.Group) {
		leader, term := g.Leader()
		r := ReplicaState{
			Partition: uint64(id), Replica: uint64(g.Self()), Node: uint64(n.ID()),
			Leader: uint64(leader), Term: term,
			Leads: leader == g.Self(), Applied: g.Applied(), Failed: g.Failed(),
			Intents: x.Intents(), FrozenFor: x.Descriptor().GetFrozen().GetPartition(),
		}
		r.LeaseTerm, r.Leased = g.Lease()
		for _, m := range g.Configuration().Members {
			r.Peers = append(r.Peers, uint64(m.Replica))
		}
		all = append(all, r)
	})
	return all
}

// Checksum is a sum over everything replicated of a partition, and the applied index it is of.
func (s *Server) Checksum(partition uint64) (index, sum uint64, err error) {
	err = fmt.Errorf("partition %d: %w", partition, ErrNoReplica)
	if n := s.node.node(); n != nil {
		n.Inspect(func(id keys.PartitionID, r *replica.Replica, _ *host.Group) {
			if uint64(id) == partition {
				index, sum, err = r.Checksum()
			}
		})
	}
	return index, sum, err
}

// CheckState compares what the disk has with what the replicas say of it, and lists what differs.
// It reads everything; the server is at rest.
func (s *Server) CheckState(ctx context.Context) ([]string, error) {
	if n := s.node.node(); n != nil {
		return n.CheckState(ctx)
	}
	return nil, nil
}

// TransferLeader makes a replica that leads hand over to another one; nothing happens if it does
// not lead.
func (s *Server) TransferLeader(partition, to uint64) {
	if n := s.node.node(); n != nil {
		n.Inspect(func(id keys.PartitionID, r *replica.Replica, _ *host.Group) {
			if uint64(id) == partition {
				r.Writes().TransferLeader(keys.ReplicaID(to))
			}
		})
	}
}

// FlushState begins to write what was applied to all partitions here to tables, as happens by
// itself when a memtable is full. It does not wait for the end of that. The server must not be
// closed meanwhile.
func (s *Server) FlushState() error {
	data := s.node.part.Load()
	if data == nil {
		return nil
	}
	return data.databases.State.AsyncFlush()
}
