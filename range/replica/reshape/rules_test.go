package reshape

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// partition is a partition of keyspace 7 with three voters, and the span from start to end.
func partition(id uint64, start, end string) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(7)
	p := &clusterpb.Partition{Id: id, Keyspace: 7, PrefixLength: keys.KeyspacePrefixLength,
		Start: append(prefix[:len(prefix):len(prefix)], start...), End: keys.PrefixEnd(prefix),
		Generation: 3, Membership: 2, NextReplica: 4}
	if end != "" {
		p.End = append(prefix[:len(prefix):len(prefix)], end...)
	}
	for n := range uint64(3) {
		p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: n + 1, Replica: n + 1,
			Role: clusterpb.ReplicaRole_VOTER})
	}
	return p
}

func with(p *clusterpb.Partition, change func(*clusterpb.Partition)) *clusterpb.Partition {
	p = proto.Clone(p).(*clusterpb.Partition)
	change(p)
	return p
}

// An entry that changes replicas without being marked as one that does, or the other way round, is
// not applied: Raft would not hear of it.
func TestAnEntryIsTheChangeThatItSays(t *testing.T) {
	now := partition(1, "a", "z")
	same := with(now, func(p *clusterpb.Partition) { p.Generation++ })
	learner := with(now, func(p *clusterpb.Partition) {
		p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: 4, Replica: 4,
			Role: clusterpb.ReplicaRole_LEARNER})
		p.NextReplica, p.Membership = 5, p.Membership+1
	})
	for _, c := range []struct {
		next   *clusterpb.Partition
		marked bool
		fits   bool
	}{{same, false, true}, {same, true, false}, {learner, true, true}, {learner, false, false}} {
		if err := CheckChange(now, c.next, c.marked); (err == nil) != c.fits {
			t.Errorf("%v, marked %v: %v", c.next.Replicas, c.marked, err)
		}
	}
}

// A partition splits into two parts that are together what it was, and nothing else.
func TestRulesOfSplits(t *testing.T) {
	now := partition(1, "a", "z")
	left := with(partition(1, "a", "m"), func(p *clusterpb.Partition) { p.Generation++ })
	right := with(partition(2, "m", "z"), func(p *clusterpb.Partition) {
		p.Generation, p.SplitFrom = left.Generation, 1
	})
	if err := CheckSplit(now, left, right); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(){
		"are not the parts of": func() { right.Start = append(right.Start, 'm') },
		"other replicas":       func() { right.Replicas = right.Replicas[:2] },
		"generations":          func() { left.Generation++ },
		"it is frozen":         func() { now.Frozen = &clusterpb.Freeze{Partition: 9} },
		"what they came from":  func() { right.SplitFrom = 5 },
		"is no voter":          func() { now.Replicas[0].Role = clusterpb.ReplicaRole_LEARNER },
	} {
		n, l, r := now, left, right
		now, left, right = proto.Clone(n).(*clusterpb.Partition),
			proto.Clone(l).(*clusterpb.Partition), proto.Clone(r).(*clusterpb.Partition)
		change()
		if err := CheckSplit(now, left, right); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("instead of %q: %v", want, err)
		}
		now, left, right = n, l, r
	}
}

// A frozen partition is consumed by the epoch that it was frozen for, or thaws, and changes in no
// other way.
func TestRulesOfFreezes(t *testing.T) {
	left, right := partition(1, "a", "m"), partition(2, "m", "z")
	frozen := with(right, func(p *clusterpb.Partition) {
		p.Membership++
		p.Frozen = &clusterpb.Freeze{Partition: 1, Generation: left.Generation,
			Membership: left.Membership}
	})
	merged := with(left, func(p *clusterpb.Partition) { p.Generation, p.End = 4, right.End })
	if err := CheckFreeze(right, frozen); err != nil {
		t.Error(err)
	}
	if err := CheckFreeze(frozen, frozen); err == nil {
		t.Error("it is frozen twice")
	}
	if err := checkConsume(left, merged, frozen); err != nil {
		t.Error(err)
	}
	if err := checkConsume(left, merged, right); err == nil {
		t.Error("what is not frozen is consumed")
	}
	later := with(left, func(p *clusterpb.Partition) { p.Membership++ })
	if err := checkConsume(later, with(merged, func(p *clusterpb.Partition) { p.Membership++ }),
		frozen); err == nil {
		t.Error("it is consumed by another epoch")
	}
	if err := CheckThaw(frozen, thawed(frozen)); err != nil {
		t.Error(err)
	}
	if err := CheckThaw(frozen, with(thawed(frozen), func(p *clusterpb.Partition) {
		p.Generation++
	})); err == nil {
		t.Error("it changes while it thaws")
	}
	if _, err := DecodeMerge(left, &proposal.Entry{Kind: proposal.KindMerge}, false); err == nil {
		t.Error("a merge without parts is taken")
	}
}
