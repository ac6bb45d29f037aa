package planner

import (
	"cmp"
	"fmt"
	"time"
)

// Settings bound what the planner does. EnsureDefaults replaces each zero by the default that the
// field names. The fields are many because each is a bound of its own, set by itself.
type Settings struct {
	// Paused: nothing is proposed. Explanations still tell what would be proposed.
	Paused bool
	// NodesReturn: nodes hand leadership back by themselves to the replica that is wanted as leader,
	// as soon as it can lead. The planner does not propose that then.
	NodesReturn bool
	// RepairDelay is how long a node has to be silent before its replicas are replaced. 5 min.
	RepairDelay time.Duration
	// DisplacedDelay is how long a displaced node has to be silent (Node.Displaced). If a directory
	// was given the address of another one by mistake, the other one answers again soon. 10 s.
	DisplacedDelay time.Duration
	// Settle is how long a node has to answer before it is given anything. 30 s.
	Settle time.Duration
	// Pause is how long a partition is left alone after an operator on it ended, with success or
	// without. Repairs and rules do not wait for the pause. 10 min.
	Pause time.Duration
	// LoadWindow is how long a leader has to measure a partition before its figures replace those of
	// the leader before. 1 min.
	LoadWindow time.Duration
	// Tolerance is how far a node may be from its share of load or bytes, as a part of the share,
	// before replicas or leaders are moved for balance. 0.1.
	Tolerance float64
	// CountTolerance is the same for numbers of replicas and of leaders, which matter less. If there
	// is load enough, leaders are balanced by load, and half the share is tolerated of their number.
	// 0.1.
	CountTolerance float64
	// LeastGain is what a move for balance has to gain, as a part of what it moves. A node that is
	// above its share by a tenth of a partition is no reason to move the partition. 0.25, below 1.
	LeastGain float64
	// LeastBytes, LeastLoad and LeastCount are differences from the share that are never worth a
	// move, however small the share is. 32 MiB, a twentieth of a core, 1.5 replicas or leaders.
	LeastBytes int64
	LeastLoad  Cores
	LeastCount float64
	// DiskHigh is the part of a disk above which replicas are moved away, and up to which balance may
	// fill the disk. DiskFull is the part up to which a repair may fill it. 0.85, 0.95.
	DiskHigh, DiskFull float64
	// NodeInFlight is how many snapshots a node may receive at a time, and how many it may send.
	// ZoneInFlight is the same for all nodes of a zone together. 4, 64.
	NodeInFlight, ZoneInFlight int
	// TransfersInFlight is how many leaderships may be on their way to a node at a time. 16.
	TransfersInFlight int
	// MaxOperators is how many operators may be in flight in all. 1,024.
	MaxOperators int
	// Scans is how many times in one step, at each level of balance, all replicas of a node are
	// looked through for moves. It bounds the time of a step when everything is out of balance. 16.
	Scans int
	// Searches is how many times in one step a place for a replica is searched. What is left waits
	// for the next step. 512.
	Searches int
	// SplitLoad is the load from which on a partition is split for its load. The load has to be as
	// high in each of the last windows (Growth.Sustained). A quarter of a core.
	SplitLoad Cores
	// MostLeft is the part of the load that one side may have at most after a split for load, the
	// load that touches both sides included. MostAcross is the part that may touch both sides. 0.75,
	// 0.25.
	MostLeft, MostAcross float64
	// SplitPause is how long a partition is not split for its load after it split or split off.
	// Splits by size do not wait for the pause. 1 min.
	SplitPause time.Duration
	// Merges: partitions are merged. Without it, explanations still tell what would be merged.
	Merges bool
	// MergePause is how long a partition is not merged after it split or split off, and how long its
	// load has to be low before a merge. After a merge the pause is SplitPause. 10 min.
	MergePause time.Duration
	// NodeSplits is how many of the partitions that a node leads may split or merge at a time,
	// AllSplits how many of all partitions. 4, 64.
	NodeSplits, AllSplits int
	// Rescan is how long a search for balance that found nothing is not repeated while no node or
	// keyspace changes. 10 s.
	Rescan time.Duration
}

// EnsureDefaults sets the fields that are zero to their defaults.
func (s *Settings) EnsureDefaults() {
	orElse(&s.RepairDelay, 5*time.Minute)
	orElse(&s.DisplacedDelay, 10*time.Second)
	orElse(&s.Settle, 30*time.Second)
	orElse(&s.Pause, 10*time.Minute)
	orElse(&s.LoadWindow, time.Minute)
	orElse(&s.Tolerance, 0.1)
	orElse(&s.CountTolerance, 0.1)
	orElse(&s.LeastGain, 0.25)
	orElse(&s.LeastBytes, 32<<20)
	orElse(&s.LeastLoad, Core/20)
	orElse(&s.LeastCount, 1.5)
	orElse(&s.DiskHigh, 0.85)
	orElse(&s.DiskFull, 0.95)
	orElse(&s.NodeInFlight, 4)
	orElse(&s.ZoneInFlight, 64)
	orElse(&s.TransfersInFlight, 16)
	orElse(&s.MaxOperators, 1024)
	orElse(&s.Scans, 16)
	orElse(&s.Searches, 512)
	orElse(&s.SplitLoad, Core/4)
	orElse(&s.MostLeft, 0.75)
	orElse(&s.MostAcross, 0.25)
	orElse(&s.SplitPause, time.Minute)
	orElse(&s.MergePause, 10*time.Minute)
	orElse(&s.NodeSplits, 4)
	orElse(&s.AllSplits, 64)
	orElse(&s.Rescan, 10*time.Second)
}

func orElse[T comparable](value *T, otherwise T) {
	*value = cmp.Or(*value, otherwise)
}

// Validate fails if complete settings have a value out of range.
func (s *Settings) Validate() error {
	switch {
	case s.RepairDelay < 0 || s.DisplacedDelay < 0 || s.Settle < 0 || s.Pause < 0 ||
		s.LoadWindow < 0 || s.Rescan < 0 || s.SplitPause < 0 || s.MergePause < 0:
		return fmt.Errorf("a delay of the planner is negative")
	case s.Tolerance <= 0 || s.Tolerance > 1:
		return fmt.Errorf("tolerance %v: want more than 0 and at most 1", s.Tolerance)
	case s.CountTolerance <= 0 || s.CountTolerance > 1:
		return fmt.Errorf("count tolerance %v: want more than 0 and at most 1", s.CountTolerance)
	case s.LeastGain <= 0 || s.LeastGain >= 1:
		return fmt.Errorf("least gain %v: want between 0 and 1", s.LeastGain)
	case s.DiskHigh <= 0 || s.DiskHigh > s.DiskFull || s.DiskFull > 1:
		return fmt.Errorf("disk high %v and full %v: want 0 < high <= full <= 1",
			s.DiskHigh, s.DiskFull)
	case s.MostLeft < 0.5 || s.MostLeft >= 1 || s.MostAcross < 0 || s.MostAcross >= 1:
		return fmt.Errorf("most left %v and across %v: want 0.5 <= left < 1 and 0 <= across < 1",
			s.MostLeft, s.MostAcross)
	case s.SplitLoad < 0:
		return fmt.Errorf("split load %s: want more than 0", s.SplitLoad)
	case s.LeastBytes < 0 || s.LeastLoad < 0 || s.LeastCount < 0:
		return fmt.Errorf("a least difference is negative")
	case s.NodeInFlight < 1 || s.ZoneInFlight < 1 || s.TransfersInFlight < 1 ||
		s.NodeSplits < 1 || s.AllSplits < 1 || s.MaxOperators < 1 || s.Scans < 1 || s.Searches < 1:
		return fmt.Errorf("a limit of the planner is below 1")
	}
	return nil
}
