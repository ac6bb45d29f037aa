package planner

import "github.com/tidemarkdb/tidemark/placement/planner/words"

// Refusal says why a node cannot be given a replica.
type Refusal uint8

// The refusals up to NoRoom pass by themselves. The others hold until a node or the keyspace
// changes.
const (
	// Allowed: the node can be given the replica.
	Allowed Refusal = iota
	// NodeBusy and ZoneBusy: the node or its zone receives as many snapshots as it may.
	NodeBusy
	ZoneBusy
	// NoRoom: the disk would be too full.
	NoRoom
	// RuleForbids: a rule of the keyspace forbids the node.
	RuleForbids
	// NotSettled: the node has not answered for long enough.
	NotSettled
	// NodeOut: the node is drained or decommissioned.
	NodeOut
	// NotAnswering: the node does not answer.
	NotAnswering
	// HoldsReplica: the node holds a replica of the partition.
	HoldsReplica

	// Refusals is how many refusals there are.
	Refusals
)

var refusalNames = []string{"allowed", "node busy", "zone busy", "no room", "rule forbids",
	"not settled", "node drained", "not answering", "holds a replica"}

func (r Refusal) String() string { return words.Name(refusalNames, int(r)) }

// MarshalText writes the name, for JSON.
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Passes says whether the refusal may end without a change of any node or keyspace.
func (r Refusal) Passes() bool { return r <= NoRoom }
