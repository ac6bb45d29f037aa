package planner

import (
	"fmt"
	"time"
)

// none32 is the index of no partition.
const none32 = ^uint32(0)

// mergeHindrance is why a partition is not merged with its right neighbour.
type mergeHindrance uint8

const (
	mergeable mergeHindrance = iota
	// hindLarge: it is too large alone, and hindTogether with its neighbour.
	hindLarge
	hindTogether
	// hindNoRight: it has no neighbour, or that is about to change.
	hindNoRight
	hindChanging
	// hindOnlyAsked: its keyspace merges only when asked; hindFounded: it was created with the
	// boundary, and hindAsked: that was asked for.
	hindOnlyAsked
	hindFounded
	hindAsked
	// hindBusy: the two have cost too much of late; hindUnmeasured: that is not known for long
	// enough.
	hindBusy
	hindUnmeasured
)

// mergesWith finds the neighbour to the right that a partition is to be merged with, as far as the
// sizes and loads of the two say; or why there is none.
func (s *State) mergesWith(i uint32) (right uint32, why mergeHindrance) {
	p, g := &s.partitions[i], &s.growths[i]
	ks := &s.keyspaces[p.keyspace].info
	if p.bytes >= ks.MergeSize {
		return none32, hindLarge
	}
	j, ok := s.partitionIndex[g.right]
	if g.right == 0 || !ok {
		return none32, hindNoRight
	}
	q, h := &s.partitions[j], &s.growths[j]
	switch {
	case q.keyspace != p.keyspace || h.left != p.id:
		return none32, hindChanging
	case ks.NoAuto:
		return none32, hindOnlyAsked
	case h.founded:
		return none32, hindFounded
	case h.asked:
		return none32, hindAsked
	case p.bytes+q.bytes >= ks.MergeSize:
		return none32, hindTogether
	case s.peakOf(i)+s.peakOf(j) >= s.settings.SplitLoad/2:
		return none32, hindBusy
	case s.calmFor(i) < s.settings.MergePause || s.calmFor(j) < s.settings.MergePause:
		return none32, hindUnmeasured
	}
	return j, mergeable
}

// whyNoMerge is a hindrance in words.
func (s *State) whyNoMerge(i uint32, why mergeHindrance) string {
	p := &s.partitions[i]
	ks := &s.keyspaces[p.keyspace].info
	right := s.growths[i].right
	switch why {
	case hindLarge:
		return fmt.Sprintf("it has %s, and neighbours are merged below %s together", size(p.bytes),
			size(ks.MergeSize))
	case hindNoRight:
		return "it has no neighbour to its right"
	case hindChanging:
		return "its neighbour is about to change"
	case hindOnlyAsked:
		return "its keyspace merges only when that is asked for"
	case hindFounded:
		return fmt.Sprintf("its keyspace was created with the boundary between it and %s", right)
	case hindAsked:
		return fmt.Sprintf("the boundary between it and %s was asked for; `tidemark merge` merges them",
			right)
	}
	j := s.partitionIndex[right]
	switch why {
	case hindTogether:
		return fmt.Sprintf("it has %s together with %s, and neighbours are merged below %s",
			size(p.bytes+s.partitions[j].bytes), right, size(ks.MergeSize))
	case hindBusy:
		return fmt.Sprintf("it and %s have cost up to %s together in the last %s, neighbours are "+
			"merged below %s", right, s.peakOf(i)+s.peakOf(j),
			minutes(min(peakFor, s.settings.MergePause)), s.settings.SplitLoad/2)
	default:
		return fmt.Sprintf("it and %s have to be calm under one leader for %s", right,
			s.settings.MergePause)
	}
}

// merge makes the operator of a merge, or of the move that brings the two nearer to each other.
func (s *State) merge(f finding) (Operator, outcome) {
	i := f.partition
	j, _ := s.mergesWith(i)
	if j == none32 {
		return Operator{}, stays
	}
	p, q := &s.partitions[i], &s.partitions[j]
	if s.mergeWaits(i, j) != "" {
		return Operator{}, waits
	}
	ks := &s.keyspaces[p.keyspace].info
	both := &GrowthReason{Bytes: p.bytes + q.bytes, Size: ks.MergeSize, Neighbour: q.id}
	if apart := s.apart(p, q); apart > 0 {
		return s.align(i, j, apart)
	}
	if s.splitLimit(p) != "" {
		return Operator{}, waits
	}
	c := s.newChange(i, Merge)
	c.right, c.resizes = q.id, true
	c.reason = Reason{Cause: TooSmall, Growth: both}
	c.growth = [2]float64{1, 0}
	if k, ok := s.partitionIndex[s.growths[i].left]; ok && s.growths[i].left != 0 {
		if m, _ := s.mergesWith(k); m == i {
			c.rejected = &Alternative{Decided: LevelGrowth, Text: fmt.Sprintf("with its left neighbour "+
				"%s: that is merged when it has its turn", s.partitions[k].id)}
		}
	}
	op, o := s.complete(c)
	if o != proposed {
		return Operator{}, waits
	}
	op.RightEpoch = q.epoch
	return op, o
}

// minutes is a duration in words.
func minutes(d time.Duration) string {
	if d == 10*time.Minute {
		return "ten minutes"
	}
	return d.String()
}

// mergeWaits says what a merge of two neighbours waits for; empty: nothing.
func (s *State) mergeWaits(i, j uint32) string {
	p, q := &s.partitions[i], &s.partitions[j]
	if q.flying || p.flying {
		return fmt.Sprintf("an operator of %s or %s", p.id, q.id)
	}
	for _, k := range []uint32{i, j} {
		if left := s.mergePause(k); left > 0 {
			return fmt.Sprintf("%s, the pause after the last split or merge of %s",
				left, s.partitions[k].id)
		}
		at := &s.partitions[k]
		if x := s.inspect(at); !x.settled || x.violations > 0 || x.leaving > 0 ||
			s.leaderOf(at) == noNode {
			return fmt.Sprintf("all replicas of %s to be sound, and its leader to be known", at.id)
		}
	}
	return ""
}

// apart counts the replicas of a partition on nodes where another one has none.
func (s *State) apart(p, q *partition) int {
	n := 0
	for _, r := range s.replicas(p) {
		if !s.holds(q, r.node) {
			n++
		}
	}
	return n
}

func (s *State) holds(p *partition, n uint16) bool {
	for _, r := range s.replicas(p) {
		if r.node == n {
			return true
		}
	}
	return false
}

// align moves one replica of the smaller one of two neighbours to a node of the other one.
func (s *State) align(i, j uint32, apart int) (Operator, outcome) {
	moves, stands := j, i
	if p, q := &s.partitions[i], &s.partitions[j]; p.bytes < q.bytes {
		moves, stands = i, j
	}
	p, q := &s.partitions[moves], &s.partitions[stands]
	if s.senderBusy(s.leaderOf(p)) {
		return Operator{}, waits
	}
	c := s.newChange(moves, Replace)
	leave := s.firstOf(p, func(r replica) bool { return !s.holds(q, r.node) && r.node != p.leader })
	if leave == noReplica {
		leave = s.firstOf(p, func(r replica) bool { return !s.holds(q, r.node) })
	}
	c.remove = s.replicas(p)[leave].node
	for _, r := range s.replicas(q) {
		if s.holds(p, r.node) || s.refuse(p, r.node, false) != Allowed {
			continue
		}
		if c.add == noNode || s.id(r.node) < s.id(c.add) {
			c.add = r.node
		}
	}
	if c.add == noNode {
		return Operator{}, waits
	}
	c.reason = Reason{Cause: Misaligned, Node: s.id(c.remove), Growth: &GrowthReason{
		Bytes: p.bytes + q.bytes, Size: s.keyspaces[p.keyspace].info.MergeSize, Neighbour: q.id}}
	c.growth = [2]float64{float64(1 + apart), float64(apart)}
	if op, o := s.complete(c); o == proposed {
		return op, o
	}
	return Operator{}, waits
}

// merging says whether a partition is being brought together with a neighbour, so that it is not
// moved for balance meanwhile.
func (s *State) merging(i uint32) bool {
	if !s.settings.Merges {
		return false
	}
	if p := &s.partitions[i]; p.bytes >= s.keyspaces[p.keyspace].info.MergeSize {
		return false
	}
	if j, _ := s.mergesWith(i); j != none32 {
		return true
	}
	left := s.growths[i].left
	if k, ok := s.partitionIndex[left]; ok && left != 0 {
		j, _ := s.mergesWith(k)
		return j == i
	}
	return false
}
