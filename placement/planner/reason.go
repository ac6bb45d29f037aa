package planner

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Cause is why something is done.
type Cause uint8

// Causes, what is done about them first to last: a change that nothing carries on, voters that are
// lost or damaged, a number of voters that is not what the keyspace wants, nodes on their way out,
// rules, spread, leaders in the wrong place, and from DiskFilling on balance, level by level.
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
	// TooLarge and TooBusy partitions are split; NewEnd is the part of one to which all that is new
	// is written; Misaligned neighbours are brought to the same nodes, so that those that are
	// TooSmall can be merged.
	TooLarge
	TooBusy
	NewEnd
	Misaligned
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

func (c Cause) String() string { return nameOf(causeNames, int(c)) }

// betters is the level that an operator for a cause has to better. A gain at a lower level only is
// not what it is for: the next State to look would find another reason, or none.
func (c Cause) betters() Level {
	switch c {
	case NodeLeaving, RuleBroken:
		return LevelLegal
	case SharedZone, SharedRegion:
		return LevelRegions
	case NodeDraining, LeaderPreferred, LeaderWanted:
		return LevelLeader
	case TooLarge, TooBusy, NewEnd, Misaligned, TooSmall:
		return LevelGrowth
	}
	if c >= DiskFilling {
		return c.level()
	}
	return LevelQuorum
}

// level is the level that a cause of balance is about; levels for the others.
func (c Cause) level() Level {
	if c < DiskFilling {
		return levels
	}
	return LevelRoom + Level(c-DiskFilling)
}

// MarshalText is for JSON.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Reason is why an operator is proposed.
type Reason struct {
	Cause Cause
	// Node is the node at issue, 0 if there is none.
	Node keys.NodeID `json:",omitempty"`
	// Silent is for how long a lost node has not answered, in nanoseconds.
	Silent time.Duration `json:",omitempty"`
	// Have and Want are replicas, or for spread the pairs that share before and after.
	Have, Want int `json:",omitempty"`
	// Rules are those that are broken.
	Rules string `json:",omitempty"`
	// Growth is about a split, a merge, or what goes with them.
	Growth *GrowthReason `json:",omitempty"`
	// From and To are both ends of a move for balance.
	From, To *Share `json:",omitempty"`
}

// Share is how far a node is from its share, as a part of the share: 0.1 is a tenth above. For
// DiskFilling it is the part of its disk that is used.
type Share struct {
	Node          keys.NodeID
	Before, After float64
}

// String is a clause in words, to follow "because".
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
			plural(r.Have, "pair"), r.Want)
	case SharedRegion:
		return fmt.Sprintf("%s of its replicas in one region, %d would be", plural(r.Have, "pair"),
			r.Want)
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
		r.From.Node, percent(r.From.Before), percent(r.From.After),
		r.To.Node, percent(r.To.Before), percent(r.To.After))
}

func (r Reason) left() string {
	return fmt.Sprintf("%d of %d voters are left", r.Have, r.Want)
}

// percent turns a deviation into a part of the share.
func percent(deviation float64) string { return fmt.Sprintf("%.0f %%", 100*(1+deviation)) }

// GrowthReason is why something splits or merges, or is moved for that.
type GrowthReason struct {
	// Bytes are those of the partition or, of what merges, of both; Size is what the keyspace splits
	// at, or merges below.
	Bytes, Size int64 `json:",omitempty"`
	// Load is what it has cost at least for three windows, and Limit from where on it is split.
	Load, Limit Cores `json:",omitempty"`
	// At is how it divides.
	At *SplitPoint `json:",omitempty"`
	// Neighbour is what it is to be merged with.
	Neighbour keys.PartitionID `json:",omitempty"`
	// Ascending is the part of the writes that goes to the end, in thousandths.
	Ascending int `json:",omitempty"`
}

// growth is the clause in words.
func (r Reason) growth() string {
	g := r.Growth
	switch r.Cause {
	case TooLarge:
		return fmt.Sprintf("it has %s, and its keyspace splits at %s; %s", size(g.Bytes), size(g.Size),
			g.At)
	case TooBusy:
		return fmt.Sprintf("it has cost %s or more for three windows, and is split from %s on; %s",
			g.Load, g.Limit, g.At)
	case NewEnd:
		return fmt.Sprintf("%s of the writes go to its end, in ascending order: it is led where there "+
			"is less load, %s is at %s of its share, %s at %s", permille(g.Ascending), r.From.Node,
			percent(r.From.Before), r.To.Node, percent(r.To.Before))
	case Misaligned:
		return fmt.Sprintf("it is to be merged with %s, with which it has %s, and %s holds no replica "+
			"of that", g.Neighbour, size(g.Bytes), r.Node)
	default:
		return fmt.Sprintf("it has %s together with %s, neighbours are merged below %s, and both have "+
			"been calm", size(g.Bytes), g.Neighbour, size(g.Size))
	}
}
