package planner

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Cause is the kind of problem that an operator is to correct.
type Cause uint8

// Causes: a change that no operator carries on, voters that are lost or damaged, a number of voters
// that the keyspace does not want, nodes on their way out, rules, spread, leaders in the wrong
// place, growth, and from DiskFilling on balance, level by level.
const (
	Unfinished Cause = iota
	LostNode
	GoneNode
	BrokenReplica
	WipedDisk
	TooFew
	TooMany
	LeftoverLearner
	NodeDraining
	NodeLeaving
	RuleBroken
	SharedZone
	SharedRegion
	LeaderPreferred
	LeaderWanted
	// TooLarge and TooBusy partitions are split.
	TooLarge
	TooBusy
	// NewTail: a partition of ascending keys was split close to its end, and the new partition takes
	// all writes of new keys.
	NewTail
	// Misaligned neighbours are brought to the same nodes, so that they can be merged.
	Misaligned
	// TooSmall neighbours are merged.
	TooSmall
	DiskFilling
	LoadUneven
	BytesUneven
	CountUneven
	LeadersUneven
)

var causeNames = []string{"unfinished change", "node lost", "node gone", "replica broken",
	"disk wiped", "too few replicas", "too many replicas", "learner left over", "node draining",
	"node leaving", "placement rule broken", "zone shared", "region shared", "leader preference",
	"leader wanted", "partition too large", "partition too busy", "new end of the keys",
	"neighbours apart", "neighbours small", "disk filling", "load uneven", "bytes uneven",
	"replicas uneven", "leaders uneven"}

func (c Cause) String() string { return words.Name(causeNames, int(c)) }

// Betters returns the level that an operator for a cause must better; bettering a higher level will
// do too. An operator that betters only a lower level does not remove its cause: the next step
// would find the cause again.
func (c Cause) Betters() Level {
	switch c {
	case NodeLeaving, RuleBroken:
		return LevelLegal
	case SharedZone, SharedRegion:
		return LevelRegions
	case NodeDraining, LeaderPreferred, LeaderWanted:
		return LevelLeader
	case TooLarge, TooBusy, NewTail, Misaligned, TooSmall:
		return LevelGrowth
	}
	if c >= DiskFilling {
		return c.Level()
	}
	return LevelQuorum
}

// Level is the level of a cause of balance; Levels for other causes.
func (c Cause) Level() Level {
	if c < DiskFilling {
		return Levels
	}
	return LevelRoom + Level(c-DiskFilling)
}

// MarshalText writes the name, for JSON.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Reason is why an operator is proposed.
type Reason struct {
	Cause Cause
	// Node is the node that the cause is about, 0 if it is about no node.
	Node keys.NodeID `json:",omitempty"`
	// Silent is how long a lost node has not answered, in nanoseconds.
	Silent time.Duration `json:",omitempty"`
	// Have and Want are numbers of replicas; for spread, the pairs of replicas that share a zone or
	// region before and after.
	Have, Want int `json:",omitempty"`
	// Rules are the rules that are broken, or the preference for leaders.
	Rules string `json:",omitempty"`
	// Growth is set for the causes of growth.
	Growth *GrowthReason `json:",omitempty"`
	// From and To are the two ends of a move for balance, or of a new tail's transfer.
	From, To *Share `json:",omitempty"`
}

// Share is how far a node is from its share before and after an operator, as a part of the share:
// 0.1 is a tenth above. For DiskFilling it is the used part of the disk.
type Share struct {
	Node          keys.NodeID
	Before, After float64
}

// String is a clause that follows "because".
func (r Reason) String() string {
	switch r.Cause {
	case Unfinished:
		return "a change of its replicas was begun and not finished"
	case LostNode:
		return fmt.Sprintf("%s has been silent for %s; %s", r.Node,
			r.Silent.Round(time.Second), r.left())
	case GoneNode:
		return fmt.Sprintf("%s is gone for good; %s", r.Node, r.left())
	case BrokenReplica:
		return fmt.Sprintf("the replica on %s is broken; %s", r.Node, r.left())
	case WipedDisk:
		return fmt.Sprintf("%s lost its disk; %s", r.Node, r.left())
	case TooFew, TooMany:
		return fmt.Sprintf("it has %d replicas and its keyspace wants %d", r.Have, r.Want)
	case LeftoverLearner:
		return fmt.Sprintf("a learner was left on %s by a change that ended", r.Node)
	case NodeDraining:
		return fmt.Sprintf("%s is drained of leaders", r.Node)
	case NodeLeaving:
		return fmt.Sprintf("%s is being decommissioned", r.Node)
	case RuleBroken:
		return fmt.Sprintf("the placement %q is not met", r.Rules)
	case SharedZone:
		return fmt.Sprintf("%s of its replicas in one zone, %d would be",
			words.Plural(r.Have, "pair"), r.Want)
	case SharedRegion:
		return fmt.Sprintf("%s of its replicas in one region, %d would be",
			words.Plural(r.Have, "pair"), r.Want)
	case LeaderPreferred:
		return fmt.Sprintf("its keyspace prefers leaders on %s, and %s is not", r.Rules, r.Node)
	case LeaderWanted:
		return fmt.Sprintf("the leader wanted can lead again, %s leads for it", r.Node)
	}
	if r.Growth != nil {
		return r.growth()
	}
	if r.From == nil || r.To == nil {
		return r.Cause.String()
	}
	if r.Cause == DiskFilling {
		return fmt.Sprintf("the disk of %s is %.0f %% full, that of %s will be %.0f %%",
			r.From.Node, 100*r.From.Before, r.To.Node, 100*r.To.After)
	}
	return fmt.Sprintf("%s: %s goes from %s to %s of its share, %s from %s to %s", r.Cause,
		r.From.Node, words.Percent(r.From.Before), words.Percent(r.From.After),
		r.To.Node, words.Percent(r.To.Before), words.Percent(r.To.After))
}

func (r Reason) left() string {
	return fmt.Sprintf("%d of %d voters are left", r.Have, r.Want)
}

// GrowthReason is why a partition splits or merges, or is moved or led elsewhere for that.
type GrowthReason struct {
	// Bytes are the bytes of the partition or, for a merge, of both partitions. Size is the size at
	// which the keyspace splits, or below which it merges.
	Bytes, Size int64 `json:",omitempty"`
	// Load is the least load of the last three windows, Limit the load from which on a partition is
	// split.
	Load, Limit Cores `json:",omitempty"`
	// At is the key of a split, and how the partition divides there.
	At *SplitPoint `json:",omitempty"`
	// Neighbour is the partition to merge with.
	Neighbour keys.PartitionID `json:",omitempty"`
	// Ascending is the part of ascending writes, in thousandths.
	Ascending int `json:",omitempty"`
}

// growth is the clause of a cause of growth.
func (r Reason) growth() string {
	g := r.Growth
	switch r.Cause {
	case TooLarge:
		return fmt.Sprintf("it has %s, and its keyspace splits at %s; %s", words.Size(g.Bytes),
			words.Size(g.Size), g.At)
	case TooBusy:
		return fmt.Sprintf("it has cost %s or more for three windows, and is split from %s on; %s",
			g.Load, g.Limit, g.At)
	case NewTail:
		return fmt.Sprintf("%s of the writes go to its end, in ascending order: it is led where there "+
			"is less load, %s is at %s of its share, %s at %s", words.Permille(g.Ascending), r.From.Node,
			words.Percent(r.From.Before), r.To.Node, words.Percent(r.To.Before))
	case Misaligned:
		return fmt.Sprintf("it is to be merged with %s, with which it has %s, and %s holds no replica "+
			"of that", g.Neighbour, words.Size(g.Bytes), r.Node)
	default:
		return fmt.Sprintf("it has %s together with %s, neighbours are merged below %s, and both have "+
			"been calm", words.Size(g.Bytes), g.Neighbour, words.Size(g.Size))
	}
}
