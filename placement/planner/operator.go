package planner

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Kind is what an operator does.
type Kind uint8

const (
	// Replace puts a replica on one node in place of the replica on another.
	Replace Kind = iota
	// Add puts one more replica on a node.
	Add
	// Remove removes a replica.
	Remove
	// Transfer hands leadership to another voter.
	Transfer
	// Finish ends a change of replicas that no operator carries on.
	Finish
	// Split divides a partition at a key. What is right of the key becomes a partition of its own.
	Split
	// Merge makes the right one of two neighbours a part of the left one.
	Merge

	kinds
)

// Kinds returns all kinds of operators.
func Kinds() []Kind {
	out := make([]Kind, kinds)
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

var kindNames = []string{"replace replica", "add replica", "remove replica", "transfer leader",
	"finish change", "split", "merge"}

func (k Kind) String() string { return words.Name(kindNames, int(k)) }

// MarshalText writes the name, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Action is what one step of an operator does.
type Action uint8

const (
	// AddLearner adds a learner on In, which a snapshot fills. The step is done when the learner has
	// caught up.
	AddLearner Action = iota
	// EnterJoint begins the joint configuration: In becomes a voter, and Out stops being one.
	EnterJoint
	// LeaveJoint ends the joint configuration. The replica on Out is removed.
	LeaveJoint
	// RemoveLearner removes the learner on Out.
	RemoveLearner
	// TransferLeader hands leadership to In.
	TransferLeader
)

var actionNames = []string{"add learner", "enter joint", "leave joint", "remove learner",
	"transfer leader"}

func (a Action) String() string { return words.Name(actionNames, int(a)) }

// MarshalText writes the name, for JSON.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Step is one step of an operator.
type Step struct {
	Action Action
	// In is the node that comes, Out the node that goes; 0 where no node does.
	In, Out keys.NodeID
	// Epoch is the epoch of the descriptor when the step begins. At any other epoch the step must not
	// be taken.
	Epoch Epoch
}

func (s Step) String() string {
	text := s.Action.String()
	if s.In != 0 {
		text += fmt.Sprintf(" +%s", s.In)
	}
	if s.Out != 0 {
		text += fmt.Sprintf(" -%s", s.Out)
	}
	return fmt.Sprintf("%s at %s", text, s.Epoch)
}

// Operator is a change of one partition that the planner proposes.
type Operator struct {
	Partition keys.PartitionID
	Keyspace  keys.KeyspaceID
	Kind      Kind
	// Add is the node that gets a replica, Remove the node that loses one, Lead the node that leads
	// at the end and is wanted as leader from then on; 0 where nothing changes.
	Add, Remove, Lead keys.NodeID
	// Key is the user key at which a Split divides the partition: the first key of the right part.
	Key Key `json:",omitempty"`
	// Right is the right neighbour, which a Merge makes a part of the partition.
	Right keys.PartitionID `json:",omitempty"`
	// Epoch is the epoch of the descriptor for which the operator was proposed, RightEpoch that of
	// Right. A Split or Merge has no steps, and must not be begun at any other epoch.
	Epoch      Epoch
	RightEpoch Epoch `json:",omitzero"`
	// Bytes is how many bytes the snapshot of the operator has; 0 if it sends none.
	Bytes int64
	// Steps are taken one after the other.
	Steps []Step
	// Reason says why the operator is proposed; Before and After are the scores without and with it.
	Reason        Reason
	Before, After Score
	// Rejected is the best alternative that was not chosen, nil if there was no choice.
	Rejected *Alternative
}

// InFlight returns the operator in the form in which the planner is told of operators in flight.
func (o *Operator) InFlight() InFlight {
	return InFlight{Partition: o.Partition, Add: o.Add, Remove: o.Remove, Lead: o.Lead,
		Split: o.Kind == Split, Right: o.Right}
}

// Title says what the operator does, without the reason.
func (o *Operator) Title() string {
	var text string
	switch o.Kind {
	case Replace:
		text = fmt.Sprintf("move replica %s to %s", o.Remove, o.Add)
	case Add:
		text = fmt.Sprintf("add replica on %s", o.Add)
	case Remove:
		text = fmt.Sprintf("remove replica on %s", o.Remove)
	case Transfer:
		return fmt.Sprintf("%s: transfer leader to %s", o.Partition, o.Lead)
	case Finish:
		text = "leave the joint configuration"
	case Split:
		text = fmt.Sprintf("split at %s", o.Key)
	case Merge:
		text = fmt.Sprintf("merge with %s", o.Right)
	}
	if o.Lead != 0 {
		text += fmt.Sprintf(", leader to %s", o.Lead)
	}
	return fmt.Sprintf("%s: %s", o.Partition, text)
}

// String is one line: the title and the reason.
func (o *Operator) String() string { return o.Title() + ": " + o.Reason.String() }

// Detail has the steps, the scores and the alternative as well, on several lines.
func (o *Operator) Detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  because %s\n", o.Title(), o.Reason)
	for _, step := range o.Steps {
		fmt.Fprintf(&b, "  step %s\n", step)
	}
	fmt.Fprintf(&b, "  score %s -> %s\n", o.Before, o.After)
	if o.Rejected != nil {
		fmt.Fprintf(&b, "  rejected %s\n", o.Rejected)
	}
	return b.String()
}

// Alternative is something that could have been done instead of an operator, and was not chosen.
type Alternative struct {
	// Node is the node that would have been given the replica or the leadership; 0 if the alternative
	// is not about nodes.
	Node keys.NodeID `json:",omitempty"`
	// Refused says why the node cannot be given the replica; Allowed if it can.
	Refused Refusal
	// Decided is the level at which an allowed alternative is worse than what was chosen.
	Decided Level
	// Text says in words what decided.
	Text string
}

func (a *Alternative) String() string {
	if a.Node == 0 {
		return a.Text
	}
	return fmt.Sprintf("%s: %s", a.Node, a.Text)
}

// InFlight is an operator that the core has begun and that has not ended.
//
// An operator that names no node, and is neither a split nor a merge, was cancelled. Its partition
// is left alone until the operator has ended, and it does not count for Settings.MaxOperators.
type InFlight struct {
	Partition         keys.PartitionID
	Add, Remove, Lead keys.NodeID
	// Split: the partition splits.
	Split bool
	// Right is the neighbour that becomes a part of the partition, 0 if no neighbour does.
	Right keys.PartitionID
}

// Proposal is what a step proposes.
type Proposal struct {
	// Operators are in the order of their urgency.
	Operators []Operator
	// Blocked counts the partitions with something wrong about which nothing can be done. Waiting
	// counts the partitions that wait for a limit, a pause or room. Package explain tells of each.
	Blocked, Waiting int
	// FirstBlocked has the blocked partitions of the lowest ids, at most MaxNamed.
	FirstBlocked []keys.PartitionID
}

// MaxNamed is how many partitions a list names that may be long.
const MaxNamed = 16
