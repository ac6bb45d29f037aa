package planner

import (
	"fmt"
	"time"
)

// Settings bound what the planner does. The zero value is completed by EnsureDefaults.
type Settings struct {
	// Paused: nothing is proposed. Why still tells what would be.
	Paused bool
	// NodesReturn: nodes hand leaderships back to where they are wanted by themselves, as soon as
	// that replica can lead. The planner then does not propose it.
	NodesReturn bool
	// RepairDelay is how long a node is silent before its replicas are replaced. 5 min.
	RepairDelay time.Duration
	// DisplacedDelay is the same of a displaced node. It is for a directory that was given another
	// one's address by mistake: the other one answers again soon. 10 s.
	DisplacedDelay time.Duration
	// Settle is how long a node has to answer before it is given anything. 30 s.
	Settle time.Duration
	// Pause is how long a partition is left alone after an operator on it ended, whether it
	// succeeded or not. Only repairs do not wait for it. 10 min.
	Pause time.Duration
	// LoadWindow is how long a leader has to have measured a partition before its figures replace
	// those of the leader before. 1 min.
	LoadWindow time.Duration
	// Tolerance is how far a node may be from the mean, as a part of the mean, before replicas or
	// leaders are moved for balance. Within it nothing moves. 0.1.
	Tolerance float64
	// CountTolerance is the same for numbers of replicas and of leaders, which matter less. Leaders
	// are balanced by load; where there is load enough to tell, their number is tolerated up to
	// half the mean away. 0.1.
	CountTolerance float64
	// LeastGain is what a move for balance has to gain, as a part of what it moves: a node over
	// its share by a tenth of a partition is not worth moving the partition. 0.25, below 1.
	LeastGain float64
	// LeastBytes, LeastLoad and LeastCount are differences from the mean that are never worth a
	// move, however small the mean is. 32 MiB, a twentieth of a core, 1.5 replicas or leaders.
	LeastBytes int64
	LeastLoad  Cores
	LeastCount float64
	// DiskHigh is the part of a disk above which replicas are moved off it, and up to which they
	// are moved to it for balance; DiskFull the part up to which a repair may fill it. 0.85, 0.95.
	DiskHigh, DiskFull float64
	// NodeInFlight is how many snapshots a node may receive at a time, and how many it may send.
	// ZoneInFlight is the same for all nodes of a zone together. 4 and 64.
	NodeInFlight, ZoneInFlight int
	// TransfersInFlight is how many leaderships may be on their way to a node at a time. 16.
	TransfersInFlight int
	// MaxOperators is how many operators may be in flight in all. 1,024.
	MaxOperators int
	// Scans is how many times in one step, at each level of balance, the replicas of a node may be
	// looked through for some to move: it bounds the time of a step where everything is out of
	// balance. 16.
	Scans int
	// Searches is how many times in one step a place is looked for, for the same reason. What is
	// left waits for the next step. 512.
	Searches int
	// SplitLoad is the load of a partition from which on it is split for its load: it has to be
	// above it in each of the last windows (Growth.Sustained). A quarter of a core.
	SplitLoad Cores
	// MostLeft is the part of the load that one side may keep at most if a partition is split for
	// its load, what touches both sides included; MostAcross the part that may touch both. 0.75,
	// 0.25.
	MostLeft, MostAcross float64
	// SplitPause is how long a partition that has split, and one that has split off, is not split
	// again for its load. Splits by size do not wait for it. 1 min.
	SplitPause time.Duration
	// Merges: partitions are merged. A State that does not merge tells what it would.
	Merges bool
	// MergePause is how long partitions that have split or split off are not merged, and for how
	// long their load has to have been low before they are. Those that have merged wait for
	// SplitPause. 10 min.
	MergePause time.Duration
	// NodeSplits is how many partitions that a node leads may be splitting or merging at a time,
	// AllSplits how many in all. 4 and 64.
	NodeSplits, AllSplits int
	// Rescan is for how long a search for balance that found nothing is not repeated while no node
	// comes or goes. 10 s.
	Rescan time.Duration
}

// EnsureDefaults sets what is zero to its default.
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
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Validate says what of complete settings makes no sense.
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
