package planner

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Epoch is the epoch of a descriptor. A change of replicas raises Membership by one in each of its
// steps; transfers of leadership leave it as it is.
type Epoch struct {
	Generation, Membership uint64
}

func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.Membership) }

// MarshalText writes what String does, for JSON.
func (e Epoch) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Role is the role of a replica in the configuration of its partition.
type Role uint8

const (
	// Voter counts for the majority.
	Voter Role = iota
	// Learner receives the log and counts for nothing.
	Learner
	// Incoming is, while the configuration is joint, a voter of the new one only.
	Incoming
	// Outgoing is, while the configuration is joint, a voter of the old one only.
	Outgoing
)

var roleNames = []string{"voter", "learner", "incoming voter", "outgoing voter"}

func (r Role) String() string { return words.Name(roleNames, int(r)) }

// MarshalText writes the name, for JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Damage says why a replica cannot serve although its node answers.
type Damage uint8

const (
	// Sound replicas can serve.
	Sound Damage = iota
	// Broken replicas are damaged, or have failed, and serve nothing.
	Broken
	// Wiped replicas are gone: their node began again with an empty disk.
	Wiped
)

// Replica is one replica of a partition. Operators name a replica by its node: together with the
// epoch, the node means one replica only.
type Replica struct {
	Node   keys.NodeID
	Role   Role
	Damage Damage
}

// Partition is what the planner is told of a partition.
type Partition struct {
	ID       keys.PartitionID
	Keyspace keys.KeyspaceID
	Epoch    Epoch
	// Replicas holds at most 15 replicas, on distinct nodes.
	Replicas []Replica
	// Leader is the node that leads, 0 if not known. Leader and Wanted count only if they hold a
	// replica of the partition.
	Leader keys.NodeID
	// Wanted is the node that should lead, as the last transfer or placement decided; 0: any node.
	// The core stores it when an operator ends that names a leader.
	Wanted keys.NodeID
	// Bytes is the size of one replica.
	Bytes int64
	// LeaderLoad is the load of the node that leads, FollowerLoad that of each other node.
	LeaderLoad, FollowerLoad Cores
	// Measured is how long the present leader has measured the load. With less than
	// Settings.LoadWindow the loads that were known before stay.
	Measured time.Duration
	// Left and Right are the neighbours, of the same keyspace and hash number: Left ends where the
	// partition begins, Right begins where it ends. 0: there is none.
	Left, Right keys.PartitionID
	// SplitFrom is the partition that this one split off from. 0: the partition was founded with its
	// keyspace, and its start is never merged away.
	SplitFrom keys.PartitionID
	// Asked: a caller asked for the boundary at the start of the partition. The planner does not
	// merge it away.
	Asked bool
	// Resized is when the partition last split, split off or merged. Zero: never, as far as is known.
	Resized time.Time
	// Growth is what the leader reports of where the partition grows. It is the zero value if the
	// report is about an earlier generation.
	Growth Growth
	// Ended is when the last operator on the partition ended, with success or without. Zero: never.
	Ended time.Time
}

// Validate fails if the partition has no id, a value out of range, too many replicas, or two of
// them on one node.
func (p *Partition) Validate() error {
	if p.ID == 0 || p.Bytes < 0 || p.LeaderLoad < 0 || p.FollowerLoad < 0 {
		return fmt.Errorf("partition %s: %d bytes, load %s and %s: a value is negative, or no id",
			p.ID, p.Bytes, p.LeaderLoad, p.FollowerLoad)
	}
	if err := p.Growth.validate(); err != nil {
		return fmt.Errorf("partition %s: %w", p.ID, err)
	}
	if len(p.Replicas) > rules.MaxReplicas-1 {
		return fmt.Errorf("partition %s has %d replicas, at most %d", p.ID, len(p.Replicas),
			rules.MaxReplicas-1)
	}
	for i, r := range p.Replicas {
		for _, other := range p.Replicas[:i] {
			if other.Node == r.Node {
				return fmt.Errorf("partition %s has two replicas on %s", p.ID, r.Node)
			}
		}
	}
	return nil
}
