package server

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// splitLocked does what a leader does with the order to split.
func (f *fleet) splitLocked(p *fleetPartition, o *clusterpb.Order) {
	if o.Target.Generation != p.d.Generation+1 || o.Target.Membership != p.d.Membership {
		return
	}
	quorum := group.ConfigurationOf(p.d)
	if !steps.AllVote(p.d) || !quorum.Quorum(func(id keys.ReplicaID) bool {
		return f.answersLocked(p, steps.ReplicaOf(p.d, uint64(id)))
	}) {
		return
	}
	child := &fleetPartition{d: proto.Clone(o.Child).(*clusterpb.Partition), term: 6,
		leader: p.leader, bytes: p.bytes / 2, usedIDs: map[uint64]bool{}}
	child.d.SplitIndex = 20
	child.mute = time.Now().Add(f.reporting.mute)
	for id := range p.usedIDs {
		child.usedIDs[id] = true
	}
	if f.parts[child.d.Id] != nil || f.merging.consumed[child.d.Id] ||
		!bytes.Equal(child.d.End, p.d.End) ||
		!bytes.Equal(child.d.Start, o.Target.End) {
		f.t.Errorf("partition %d: a split that cannot be: %v", p.d.Id, o)
		return
	}
	p.d, p.bytes = proto.Clone(o.Target).(*clusterpb.Partition), p.bytes-child.bytes
	p.split, p.reporting = time.Now(), f.reporting
	f.parts[child.d.Id] = child
}

// tellOfSplitLocked adds to a report what the leader says of a split.
func (f *fleet) tellOfSplitLocked(p *fleetPartition, report *clusterpb.PartitionReport) {
	if p.split.IsZero() {
		return
	}
	since := time.Since(p.split)
	if since < p.reporting.unsettled {
		report.Described = nil
	}
	if since < p.reporting.whole || since >= p.reporting.done {
		return
	}
	for _, child := range f.parts {
		if child.d.SplitFrom == p.d.Id {
			report.SplitOff = append(report.SplitOff, proto.Clone(child.d).(*clusterpb.Partition))
		}
	}
}

// tiled says what is wrong with the table of a keyspace: its partitions have to cover a span
// without holes and overlaps.
func tiled(all []*clusterpb.PartitionInfo, span keys.Span) string {
	slices.SortFunc(all, func(a, b *clusterpb.PartitionInfo) int {
		return bytes.Compare(a.Partition.Start, b.Partition.Start)
	})
	at := span.Start
	for _, p := range all {
		if !bytes.Equal(p.Partition.Start, at) {
			return "a hole or an overlap at " + keys.Pretty(at)
		}
		at = p.Partition.End
	}
	if !bytes.Equal(at, span.End) {
		return "a hole at the end"
	}
	return ""
}

// asTable says whether the table has the partitions as they are, and their leaders.
func (f *fleet) asTable(keyspace string) bool {
	table := partitionsIn(f.t, f.client, keyspace)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(table) != len(f.parts) {
		return false
	}
	for _, info := range table {
		p := f.parts[info.Partition.Id]
		if p == nil || info.LeaderNode != p.leader || p.leader == 0 ||
			!proto.Equal(p.d, info.Partition) {
			return false
		}
	}
	return true
}
