package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// This file has methods with which tests and debugging look into a server and control it. The
// server itself does not use them.

// ReplicaState is the present state of one replica of a partition on this server.
type ReplicaState struct {
	Partition, Replica, Node uint64
	// Leader is the replica that leads, as far as this replica knows, or 0. Leads is set if this
	// replica leads.
	Leader, Term uint64
	Leads        bool
	// Leased is set if the replica's leader lease, of the term LeaseTerm, is valid at this moment.
	Leased    bool
	LeaseTerm uint64
	Applied   uint64
	// Intents is the number of keys that are locked by writing transactions, in the applied state of
	// this replica.
	Intents int
	// FrozenFor is the left neighbour for which the partition is frozen in the applied state of this
	// replica, or 0.
	FrozenFor uint64
	// Failed is the reason why the replica has failed, or nil.
	Failed error
	// Peers are the ids of all replicas of the partition.
	Peers []uint64
}

// ErrNoReplica is returned for a partition without a replica on this server.
var ErrNoReplica = errors.New("no replica here")

// NodeID returns the id of the data node, or 0 before the node has an id.
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

// Checksum returns a checksum of all replicated data of a partition, and the applied index of that
// data.
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

// CheckState compares the content of the disk with the state of the replicas, and lists the
// differences. It reads all data. The server must be at rest.
func (s *Server) CheckState(ctx context.Context) ([]string, error) {
	if n := s.node.node(); n != nil {
		return n.CheckState(ctx)
	}
	return nil, nil
}

// TransferLeader makes a leading replica transfer its leadership to another one. It does nothing if
// the replica does not lead.
func (s *Server) TransferLeader(partition, to uint64) {
	if n := s.node.node(); n != nil {
		n.Inspect(func(id keys.PartitionID, r *replica.Replica, _ *host.Group) {
			if uint64(id) == partition {
				r.Writes().TransferLeader(keys.ReplicaID(to))
			}
		})
	}
}

// FlushState starts to write the applied state of all partitions here to tables, as happens
// automatically when a memtable is full. It does not wait for the end. The server must not be
// closed meanwhile.
func (s *Server) FlushState() error {
	data := s.node.part.Load()
	if data == nil {
		return nil
	}
	return data.databases.State.AsyncFlush()
}
