package splitrecovery

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// StateOf decides what a split does for the child on a node. self is the id of the parent's
// replica here, which the child's would have too.
func StateOf(log *raftlog.Log, state engine.Reader, child *clusterpb.Partition,
	self keys.ReplicaID) (reshape.ChildState, error) {
	partition := keys.PartitionID(child.GetId())
	id, known, err := log.Identity(partition)
	if err != nil {
		return 0, err
	}
	_, recorded, err := storage.ReadRecorded(state, partition)
	switch {
	case err != nil:
		return 0, err
	case !known, id.Removed && id.Replica < self:
		return reshape.Created, nil
	case id.Removed:
		return reshape.Elsewhere, nil
	case recorded:
		return reshape.Kept, nil
	case id.Replica == self && len(id.Voters) > 0:
		return reshape.Created, nil // its log was made, and a crash took the base back
	}
	return reshape.Elsewhere, nil
}

// Identity returns the identity of a replica that a split has made of the parent's.
func Identity(child *clusterpb.Partition, self keys.ReplicaID) (raftlog.Identity, error) {
	id := raftlog.Identity{Group: keys.PartitionID(child.GetId()), Replica: self}
	for _, r := range child.GetReplicas() {
		if r.GetRole() == clusterpb.ReplicaRole_VOTER {
			id.Voters = append(id.Voters, keys.ReplicaID(r.GetReplica()))
		}
	}
	descriptor, err := proto.Marshal(child)
	if err != nil {
		return id, fmt.Errorf("partition %s: encoding the descriptor: %w", id.Group, err)
	}
	id.Descriptor = descriptor
	return id, nil
}

// IsChild reports whether an identity is of a replica that a split has made, and of which
// partition.
func IsChild(id raftlog.Identity) (*clusterpb.Partition, bool) {
	if id.Removed || len(id.Voters) == 0 {
		return nil, false
	}
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(id.Descriptor, p); err != nil {
		return nil, false // the replica does not open, for another reason
	}
	return p, p.SplitFrom != 0
}

// Idle is the group of a replica that only applies.
type Idle struct{}

var errIdle = errors.New("the replica has no group")

func (Idle) Propose(uint64, []byte) error                            { return errIdle }
func (Idle) ProposeChange(uint64, []byte, group.Configuration) error { return errIdle }
func (Idle) ReadIndex(done func(error))                              { done(errIdle) }
func (Idle) Lease() (uint64, bool)                                   { return 0, false }
func (Idle) LeaseLeft() time.Duration                                { return 0 }
func (Idle) Leader() (keys.ReplicaID, uint64)                        { return 0, 0 }
func (Idle) Appended() uint64                                        { return 0 }
func (Idle) Wake()                                                   {}
func (Idle) TransferLeader(uint64, keys.ReplicaID)                   {}
