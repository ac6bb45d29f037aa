package planner

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Epoch is the epoch of a descriptor. A change of replicas raises Membership by one in each of its
// steps; transfers of leadership leave it as it is.
type Epoch struct {
	Generation, Membership uint64
}

func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Generation, e.Membership) }

// MarshalText is for JSON.
func (e Epoch) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Role is what a replica is in the configuration of its partition.
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

func (r Role) String() string { return nameOf(roleNames, int(r)) }

// MarshalText is for JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Damage is what makes a replica unable to serve although its node answers.
type Damage uint8

const (
	// Sound: nothing.
	Sound Damage = iota
	// Broken: it is damaged, or failed, and serves nothing.
	Broken
	// Wiped: its node began again with an empty disk.
	Wiped
)

// Replica is one replica of a partition. Operators name replicas by their nodes: with the epoch,
// that is one replica.
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
	// Replicas has at most 15, on distinct nodes.
	Replicas []Replica
	// Leader is the node that leads, 0 if not known. Leader and Wanted count only if they hold a
	// replica.
	Leader keys.NodeID
	// Wanted is the node that should lead, as the last transfer or placement decided; 0: any. The
	// core stores it when an operator that names one ends.
	Wanted keys.NodeID
	// Bytes is the size of one replica.
	Bytes int64
	// LeaderLoad is what it costs the node that leads it, and FollowerLoad each other node.
	LeaderLoad, FollowerLoad Cores
	// Measured is for how long the present leader has measured the load. With less than
	// Settings.LoadWindow the loads known before stay.
	Measured time.Duration
	// Left and Right are its neighbours: of the same keyspace and hash number, ending where it
	// begins and beginning where it ends. 0: there is none.
	Left, Right keys.PartitionID
	// SplitFrom is what it split off from; 0: it was founded with its keyspace, and its start is
	// never merged away.
	SplitFrom keys.PartitionID
	// Asked: the boundary at its start was asked for, and is not merged away by itself.
	Asked bool
	// Resized is when it last split, split off or merged. Zero: never, as far as is known.
	Resized time.Time
	// Growth is what its leader says of where it grows. The zero value if what is reported is of
	// an earlier generation.
	Growth Growth
	// Ended is when the last operator on it ended, whether it succeeded or not. Zero: never.
	Ended time.Time
}

func (p *Partition) validate() error {
	if p.ID == 0 || p.Bytes < 0 || p.LeaderLoad < 0 || p.FollowerLoad < 0 {
		return fmt.Errorf("partition %s: %d bytes, load %s and %s: a value is negative, or no id",
			p.ID, p.Bytes, p.LeaderLoad, p.FollowerLoad)
	}
	if err := p.Growth.validate(); err != nil {
		return fmt.Errorf("partition %s: %w", p.ID, err)
	}
	if len(p.Replicas) > maxReplicas-1 {
		return fmt.Errorf("partition %s has %d replicas, at most %d", p.ID, len(p.Replicas),
			maxReplicas-1)
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
