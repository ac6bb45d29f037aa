package server

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition that has split is reported by its leader with a narrower span, and with the
// partitions that split off. The leaders of the new partitions report them too. Those reports are
// needed if the parent's leader has no replica of the child: its own replica may come from a
// snapshot from after the split. A partition that has subsumed its right neighbour is reported with
// a wider span. Several splits and merges may be reported at once.
//
// INVARIANT: the table has neither a hole nor an overlap. A change of a span is written in one
// transaction with the partitions that fill the freed part of the span, and with the removal of the
// partitions that the span covers now. The old partitions and the new ones cover the same span.
//
// INVARIANT: except for a drop, a partition leaves the table only if it was subsumed: another
// partition with a higher generation has the key at which it began. Only a merge gives a
// partition's first key to another partition, and the generation of the partition that has a key
// only grows.

// reshaped is a report that changes a partition's span. now is the partition in the table, and
// claim is the report. The embedded followed is what will be written if the report is true.
type reshaped struct {
	followed
	now   *clusterpb.Partition
	claim reports.Claim
}

// followSpans judges reports that change spans, and returns the descriptors to write. A report that
// is incomplete is kept for incompleteFor. After that, the nodes are asked to report all partitions
// that they lead.
func (s *Server) followSpans(v *store.View, changed []reshaped, orphans []*clusterpb.Partition,
) (due []followed, err error) {
	if len(changed) == 0 {
		return nil, nil
	}
	j, err := s.newSpanJudge(v, orphans)
	if err != nil {
		return nil, err
	}
	for _, n := range changed {
		d := n.descriptor
		if n.keyspace, err = meta.LoadKeyspace(v, keys.KeyspaceID(d.Keyspace)); err != nil {
			return due, err
		}
		if n.keyspace.Keyspace == nil || n.keyspace.State != clusterpb.KeyspaceState_ACTIVE {
			continue // the keyspace is being dropped
		}
		n.pieces, n.gone, err = j.tile(n.now, d, n.claim.SplitOff)
		switch {
		case err == nil:
			due = append(due, n.followed)
		case !errors.Is(err, errIncomplete):
			s.refuseReport(d, err)
		case time.Since(n.claim.At) >= incompleteFor:
			s.reports.Distrust(n.now)
		case s.reports.Lacks(d, err.Error()):
			s.config.Logger.Warn("the report of a split or merge is not complete, and the table stays "+
				"as it is until it is", "partition", keys.PartitionID(d.Id), "error", err)
		}
	}
	return due, nil
}

// errIncomplete means that a part of a changed span is not reported yet.
var errIncomplete = errors.New("a part of its span is not reported")

// tabled is a partition in the table.
type tabled struct {
	descriptor *clusterpb.Partition
	key        []byte
	revision   uint64
}

// spanJudge judges reports that change spans, given the table. It is used for one pass over the
// reports.
type spanJudge struct {
	server *Server
	view   *store.View
	ids    *serverpb.Ids
	// operators has the operators under way by partition. children has the operators that split by the
	// id of the child, and merging the operators that merge by the id of the right partition.
	operators, children, merging map[keys.PartitionID]*serverpb.Operator
	// orphans are descriptors that leaders report and that the table does not have.
	orphans []*clusterpb.Partition
	// taken has the partitions that are added or removed by reports which were accepted in this pass.
	taken map[keys.PartitionID]bool
	// starts has, for keyspaces in which a partition is reported wider, the partitions by the keys at
	// which they begin.
	starts map[keys.KeyspaceID]map[string]tabled
}

func (s *Server) newSpanJudge(v *store.View, orphans []*clusterpb.Partition) (*spanJudge, error) {
	j := &spanJudge{server: s, view: v, orphans: orphans, taken: map[keys.PartitionID]bool{},
		children: map[keys.PartitionID]*serverpb.Operator{},
		merging:  map[keys.PartitionID]*serverpb.Operator{},
		starts:   map[keys.KeyspaceID]map[string]tabled{}}
	var err error
	if j.ids, _, err = meta.LoadIDs(v); err != nil {
		return nil, err
	}
	if j.operators, err = meta.LoadOperators(v); err != nil {
		return nil, err
	}
	for _, o := range j.operators {
		if steps.Splits(o) {
			j.children[keys.PartitionID(o.Child)] = o
		}
		if steps.Merges(o) {
			j.merging[keys.PartitionID(o.Right)] = o
		}
	}
	return j, nil
}

// window is a range of adjacent partitions of the table, up to an internal key. The first partition
// continues with another span. The others are gone.
type window struct {
	old  []*clusterpb.Partition
	gone []tabled
	end  []byte
}

// subsumed reports whether the table shows that a partition was subsumed. A node continues to
// report such a partition while it still has a replica, and may never have had the partition in its
// table.
func (w *window) subsumed(p *clusterpb.Partition) bool {
	return slices.ContainsFunc(w.old, func(old *clusterpb.Partition) bool {
		return keys.Subsumes(old, p)
	})
}

// tile computes what a partition of the table has become if it is reported as next: the partitions
// that are new, and the partitions that are gone.
func (j *spanJudge) tile(now, next *clusterpb.Partition, splitOff []*clusterpb.Partition,
) (pieces []*clusterpb.Partition, gone []tabled, err error) {
	if err := continues(now, next); err != nil {
		return nil, nil, err
	}
	if j.taken[keys.PartitionID(now.Id)] {
		return nil, nil, fmt.Errorf("%w: what consumed it is written first", errIncomplete)
	}
	offered, known, err := j.offered(splitOff)
	if err != nil {
		return nil, nil, err
	}
	w := &window{old: []*clusterpb.Partition{now}, end: now.End}
	at := next.End
	for {
		c := bytes.Compare(at, w.end)
		if c == 0 {
			if more, err := j.goesOn(w, offered); err != nil {
				return nil, nil, err
			} else if !more {
				break
			}
			c = 1
		}
		if c > 0 {
			if err := j.widen(w, now); err != nil {
				return nil, nil, err
			}
			continue
		}
		piece, err := j.pieceAt(at, w, offered)
		if err != nil {
			return nil, nil, err
		}
		pieces, at = append(pieces, piece), piece.End
		delete(offered, piece.Id)
	}
	if len(pieces)+len(w.gone) == 0 {
		return nil, nil, fmt.Errorf("its generation is %d, and with the same span it was %d",
			next.Generation, now.Generation)
	}
	rest := keys.Span{Start: next.End, End: w.end}
	for _, p := range offered {
		if rest.Overlaps(keys.PartitionSpan(p)) && !keys.Subsumes(next, p) && !w.subsumed(p) {
			return nil, nil, fmt.Errorf("partition %d, which split off, overlaps others: its span is %s",
				p.Id, keys.PartitionSpan(p))
		} // it split off earlier, and belongs to another partition now
	}
	for id, p := range known {
		if rest.Overlaps(keys.PartitionSpan(p)) {
			return nil, nil, fmt.Errorf("partition %d did not split off: the table has it", id)
		}
	}
	if err := descend(w.old, pieces); err != nil {
		return nil, nil, err
	}
	for _, g := range w.gone {
		if err := j.subsumed(g.descriptor, append(pieces, next)); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range append(pieces, w.old...) {
		j.taken[keys.PartitionID(p.Id)] = true
	}
	return pieces, w.gone, nil
}

// continues returns an error if a descriptor cannot be the result of splits and merges of a
// partition.
func continues(now, next *clusterpb.Partition) error {
	switch {
	case next.Generation <= now.Generation:
		return fmt.Errorf("its span is %s and was %s, in the same generation",
			keys.PartitionSpan(next), keys.PartitionSpan(now))
	case !bytes.Equal(next.Start, now.Start):
		return fmt.Errorf("its span is %s, and was %s: a partition keeps the key at which it begins",
			keys.PartitionSpan(next), keys.PartitionSpan(now))
	case next.Hash != now.Hash || next.PrefixLength != now.PrefixLength:
		return fmt.Errorf("its hash number is %d and was %d", next.Hash, now.Hash)
	case next.SplitFrom != now.SplitFrom || next.SplitIndex != now.SplitIndex:
		return fmt.Errorf("it split off from partition %d, and the table has it from %d",
			next.SplitFrom, now.SplitFrom)
	case next.Frozen != nil && next.Frozen.Partition == next.Id:
		return errors.New("it is frozen for itself")
	}
	return nil
}

// goesOn reports whether the partition that begins at the end of a window is gone as well. That is
// the case if the reported partition has subsumed it, and has then split at the former boundary.
func (j *spanJudge) goesOn(w *window, offered map[uint64]*clusterpb.Partition) (bool, error) {
	for _, p := range offered {
		if !bytes.Equal(p.Start, w.end) {
			continue
		}
		g, found, err := j.startingAt(w.old[0], w.end)
		if found || err != nil {
			return p.Generation > g.descriptor.GetGeneration() && p.Keyspace == w.old[0].Keyspace, err
		}
	}
	return false, nil
}

// widen adds the next partition of the table to a window, as one that is gone.
func (j *spanJudge) widen(w *window, now *clusterpb.Partition) error {
	g, found, err := j.startingAt(now, w.end)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("its span goes beyond %s, where that of its keyspace or hash number ends",
			keys.Pretty(keys.UserKey(now, w.end)))
	case j.taken[keys.PartitionID(g.descriptor.Id)]:
		return fmt.Errorf("%w: another report of partition %d is written first", errIncomplete,
			g.descriptor.Id)
	}
	w.old, w.gone = append(w.old, g.descriptor), append(w.gone, g)
	w.end = g.descriptor.End
	return nil
}

// startingAt returns the partition of the table that begins at a key, in the keyspace and hash
// number of another partition.
func (j *spanJudge) startingAt(of *clusterpb.Partition, key []byte) (tabled, bool, error) {
	keyspace := keys.KeyspaceID(of.Keyspace)
	all := j.starts[keyspace]
	if all == nil {
		all = map[string]tabled{}
		for kv, err := range j.view.All(meta.PartitionsOf(keyspace)) {
			if err != nil {
				return tabled{}, false, err
			}
			p, err := meta.DecodePartition(kv.Key, kv.Value)
			if err != nil {
				return tabled{}, false, err
			}
			all[string(p.Start)] = tabled{p, kv.Key, kv.ModRevision}
		}
		j.starts[keyspace] = all
	}
	g, found := all[string(key)]
	return g, found && g.descriptor.Hash == of.Hash &&
		g.descriptor.PrefixLength == of.PrefixLength, nil
}

// subsumed returns an error if a partition of the table was not subsumed by one of the partitions
// that have its span now.
//
// The generations show whether a merge is possible. The report of one leader does not prove it:
// either a merge was ordered, or the partition was reported frozen. If neither is known, as after a
// recovery of the core, the partition must have no known leader, and its replicas must be on the
// nodes where a merge requires them. Another operator of the partition then ends without effect.
func (j *spanJudge) subsumed(old *clusterpb.Partition, by []*clusterpb.Partition) error {
	id := keys.PartitionID(old.Id)
	var d *clusterpb.Partition
	for _, p := range by {
		if keys.PartitionSpan(p).Contains(old.Start) {
			d = p
		}
	}
	newest := j.server.reports.Newest(id, old)
	leader, _ := j.server.reports.Progress(id)
	switch {
	case d == nil || d.Id == old.Id:
		return fmt.Errorf("partition %d is not in what is reported, and nothing has consumed it",
			old.Id)
	case d.Generation <= newest.Generation:
		return fmt.Errorf("partition %d has the span of partition %d in generation %d, and that is in "+
			"generation %d: it was not consumed", d.Id, old.Id, d.Generation, newest.Generation)
	case j.merging[id] != nil || newest.Frozen != nil:
		return nil
	case leader != 0:
		return fmt.Errorf("%w: node %d still leads partition %d, which is said to be consumed",
			errIncomplete, leader, old.Id)
	}
	for _, r := range newest.Replicas {
		if steps.ReplicaAt(d, keys.NodeID(r.Node)) == nil {
			return fmt.Errorf("partition %d was not consumed by partition %d: it has a replica on node "+
				"%d, and the other one has none there", old.Id, d.Id, r.Node)
		}
	}
	return nil
}

// incompleteFor is the time for which an incomplete report of a split or merge is kept.
const incompleteFor = 30 * time.Second
