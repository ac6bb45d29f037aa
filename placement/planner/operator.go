package planner

import (
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Kind is what an operator does.
type Kind uint8

const (
	// Replace puts a replica on one node in place of that on another.
	Replace Kind = iota
	// Add puts one more replica on a node.
	Add
	// Remove takes a replica away.
	Remove
	// Transfer hands leadership to another voter.
	Transfer
	// Finish ends a change of replicas that nothing carries on.
	Finish
	// Split has a partition keep what is left of a key; the rest becomes a partition of its own.
	Split
	// Merge puts two neighbours together: the right one becomes part of the left one.
	Merge

	kinds
)

// Kinds are all kinds of operators.
func Kinds() []Kind {
	out := make([]Kind, kinds)
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

var kindNames = []string{"replace replica", "add replica", "remove replica", "transfer leader",
	"finish change", "split", "merge"}

func (k Kind) String() string { return nameOf(kindNames, int(k)) }

// MarshalText is for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Action is what one step of an operator does.
type Action uint8

const (
	// AddLearner adds a learner on the step's node, filled by a snapshot. The step is done when
	// the learner has caught up.
	AddLearner Action = iota
	// EnterJoint begins the joint configuration: In becomes a voter and Out stops being one.
	EnterJoint
	// LeaveJoint ends it. The replica on Out is removed.
	LeaveJoint
	// RemoveLearner removes a learner.
	RemoveLearner
	// TransferLeader hands leadership to In.
	TransferLeader
)

var actionNames = []string{"add learner", "enter joint", "leave joint", "remove learner",
	"transfer leader"}

func (a Action) String() string { return nameOf(actionNames, int(a)) }

// MarshalText is for JSON.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Step is one step of an operator.
type Step struct {
	Action Action
	// In and Out are the nodes that come and go, 0 where there is none.
	In, Out keys.NodeID
	// Epoch is the epoch that the descriptor has when the step begins. With any other the step must
	// not be taken.
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
	// Add and Remove are the nodes that get and lose a replica, Lead the node that leads at the
	// end and is wanted as leader from then on; 0 where nothing changes.
	Add, Remove, Lead keys.NodeID
	// Key is where a partition is split, a user key: it begins the right part. Only of a Split.
	Key Key `json:",omitempty"`
	// Right is the partition that becomes part of this one, its neighbour to the right. Only of a
	// Merge.
	Right keys.PartitionID `json:",omitempty"`
	// Epoch is the epoch of the descriptor that it was proposed for, and RightEpoch that of Right.
	// With any other a Split or Merge must not be begun; they have no steps.
	Epoch      Epoch
	RightEpoch Epoch `json:",omitzero"`
	// Bytes is what a snapshot of it sends; 0 if there is none.
	Bytes int64
	// Steps are taken one after the other.
	Steps []Step
	// Reason says why at all, Before and After what it betters.
	Reason        Reason
	Before, After Score
	// Rejected is the best that was not chosen, nil if there was no choice.
	Rejected *Alternative
}

// Flight is what has to be told of an operator in flight.
func (o *Operator) Flight() Flight {
	return Flight{Partition: o.Partition, Add: o.Add, Remove: o.Remove, Lead: o.Lead,
		Split: o.Kind == Split, Right: o.Right}
}

// Title says what it does, without why.
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

// String is one line, with the reason.
func (o *Operator) String() string { return o.Title() + ": " + o.Reason.String() }

// Detail has everything, on several lines.
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

// Alternative is a node that was not chosen.
type Alternative struct {
	// Node is what would have been given the replica or the leadership; 0 where it is not about
	// nodes.
	Node keys.NodeID `json:",omitempty"`
	// Refused is why it cannot be; Allowed if it could.
	Refused Refusal
	// Decided is the level at which it is worse than what was chosen, if it was allowed.
	Decided Level
	// Text says so in words.
	Text string
}

func (a *Alternative) String() string {
	if a.Node == 0 {
		return a.Text
	}
	return fmt.Sprintf("%s: %s", a.Node, a.Text)
}

// Flight is an operator that the core has begun and that has not ended.
//
// One that names no node, and is neither a split nor a merge, was cancelled: its partition is left
// alone until it has ended, and it does not count for MaxOperators.
type Flight struct {
	Partition         keys.PartitionID
	Add, Remove, Lead keys.NodeID
	// Split: the partition splits.
	Split bool
	// Right is the neighbour that becomes part of it, 0 if none does.
	Right keys.PartitionID
}
