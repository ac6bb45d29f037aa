package server

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition that has split is reported by its leader with a narrower span, and with the
// partitions that split off. The leaders of these report them too; what they say fills gaps, for
// the parent's leader has no replica of the child if its own was made by a snapshot from after the
// split.
//
// INVARIANT: the table has neither a hole nor an overlap. A narrower span is written in one
// transaction with partitions that fill exactly what it leaves, or not at all.

// narrowed is a report of a split: what is to be written if its pieces are found, the partition as
// the table has it, and what was said.
type narrowed struct {
	followed
	now   *clusterpb.Partition
	claim claim
}

// followSplits finds the pieces of partitions that have split. A report of which a piece is missing
// is kept for a while; then the nodes are asked for everything that they lead.
func (s *Server) followSplits(v *store.View, split []narrowed, orphans []*clusterpb.Partition,
) (due []followed, err error) {
	if len(split) == 0 {
		return nil, nil
	}
	j, err := s.newSplitJudge(v, orphans)
	if err != nil {
		return nil, err
	}
	for _, n := range split {
		d := n.descriptor
		if n.keyspace, err = loadKeyspace(v, keys.KeyspaceID(d.Keyspace)); err != nil {
			return due, err
		}
		if n.keyspace.Keyspace == nil || n.keyspace.State != clusterpb.KeyspaceState_ACTIVE {
			continue // it is being dropped
		}
		pieces, err := j.pieces(n.now, d, n.claim.splitOff)
		switch {
		case err == nil:
			n.pieces = pieces
			due = append(due, n.followed)
		case !errors.Is(err, errIncomplete):
			s.refuseReport(d, err)
		case time.Since(n.claim.at) >= incompleteFor:
			s.soft.distrust(n.now)
		case s.soft.lacks(d, err.Error()):
			s.config.Logger.Warn("the report of a split is not complete, and the table stays as it is "+
				"until it is", "partition", keys.PartitionID(d.Id), "error", err)
		}
	}
	return due, nil
}

// errIncomplete says that a part of the span is not reported, and may be later.
var errIncomplete = errors.New("a part of its span is not reported")

// splitJudge says what of a report of a split can be true, given the table. It is for one look at
// the reports.
type splitJudge struct {
	server *Server
	view   *store.View
	ids    *serverpb.Ids
	// operators are those under way, by partition and, of those that split, by child.
	operators, children map[keys.PartitionID]*serverpb.Operator
	// orphans are what leaders say of partitions that the table does not have, by id.
	orphans []*clusterpb.Partition
	// taken are the children of reports that were found true in this look.
	taken map[keys.PartitionID]bool
}

func (s *Server) newSplitJudge(v *store.View, orphans []*clusterpb.Partition) (*splitJudge, error) {
	j := &splitJudge{server: s, view: v, orphans: orphans, taken: map[keys.PartitionID]bool{},
		children: map[keys.PartitionID]*serverpb.Operator{}}
	var err error
	if j.ids, _, err = loadIDs(v); err != nil {
		return nil, err
	}
	if j.operators, err = loadOperators(v); err != nil {
		return nil, err
	}
	for _, o := range j.operators {
		if splits(o) {
			j.children[keys.PartitionID(o.Child)] = o
		}
	}
	return j, nil
}

// pieces are the partitions that have split off from one of the table, which is reported as next.
func (j *splitJudge) pieces(now, next *clusterpb.Partition, splitOff []*clusterpb.Partition,
) ([]*clusterpb.Partition, error) {
	if err := narrower(now, next); err != nil {
		return nil, err
	}
	offered, err := j.offered(now, next, splitOff)
	if err != nil {
		return nil, err
	}
	var pieces []*clusterpb.Partition
	for at := next.End; !bytes.Equal(at, now.End); {
		piece, err := j.pieceAt(at, now, offered)
		if err != nil {
			return nil, err
		}
		pieces, at = append(pieces, piece), piece.End
		delete(offered, piece.Id)
	}
	for _, p := range offered {
		return nil, fmt.Errorf("partition %d, which split off, overlaps others: its span is %s", p.Id,
			keys.PartitionSpan(p))
	}
	if err := descend(now, pieces); err != nil {
		return nil, err
	}
	for _, p := range pieces {
		j.taken[keys.PartitionID(p.Id)] = true
	}
	return pieces, nil
}

// narrower says why a descriptor is not what is left of another one after a split.
func narrower(now, next *clusterpb.Partition) error {
	whole, left := keys.PartitionSpan(now), keys.PartitionSpan(next)
	switch {
	case next.Generation <= now.Generation:
		return fmt.Errorf("its span is %s and was %s, in the same generation", left, whole)
	case !bytes.Equal(left.Start, whole.Start) || !whole.ContainsSpan(left):
		return fmt.Errorf("its span is %s, and was %s: a split leaves it the left part", left, whole)
	case next.Hash != now.Hash || next.PrefixLength != now.PrefixLength:
		return fmt.Errorf("its hash number is %d and was %d", next.Hash, now.Hash)
	case next.SplitFrom != now.SplitFrom || next.SplitIndex != now.SplitIndex:
		return fmt.Errorf("it split off from partition %d, and the table has it from %d", next.SplitFrom,
			now.SplitFrom)
	}
	return nil
}

// offered are the partitions of a report that lie in what the parent has left, by id, without those
// that the table has already.
func (j *splitJudge) offered(now, next *clusterpb.Partition, splitOff []*clusterpb.Partition,
) (map[uint64]*clusterpb.Partition, error) {
	offered := make(map[uint64]*clusterpb.Partition, len(splitOff))
	rest := keys.Span{Start: next.End, End: now.End}
	for _, p := range splitOff {
		if err := keys.ValidatePartition(p); err != nil {
			return nil, err
		}
		if !rest.Overlaps(keys.PartitionSpan(p)) {
			continue // from an earlier split, and another partition's by now
		}
		there, _, err := loadPartition(j.view, keys.KeyspaceID(now.Keyspace), keys.PartitionID(p.Id))
		switch {
		case err != nil:
			return nil, err
		case there != nil:
			return nil, fmt.Errorf("partition %d did not split off: the table has it, with the span %s",
				p.Id, keys.PartitionSpan(there))
		case offered[p.Id] != nil:
			return nil, fmt.Errorf("partition %d split off twice", p.Id)
		}
		offered[p.Id] = p
	}
	return offered, nil
}

// pieceAt is the partition that begins at a key: one of those that the report offers, or one of
// which only its own leader has said something.
func (j *splitJudge) pieceAt(at []byte, now *clusterpb.Partition,
	offered map[uint64]*clusterpb.Partition) (*clusterpb.Partition, error) {
	var found *clusterpb.Partition
	for _, p := range offered {
		if !bytes.Equal(p.Start, at) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("partitions %d and %d, which split off, both begin at %s", found.Id,
				p.Id, keys.Pretty(keys.UserKey(now, at)))
		}
		found = p
	}
	if found != nil {
		return found, j.check(found, now)
	}
	for _, p := range j.orphans {
		if bytes.Equal(p.Start, at) && offered[p.Id] == nil && j.check(p, now) == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: what begins at %s", errIncomplete,
		keys.Pretty(keys.UserKey(now, at)))
}

// check says why a partition cannot have split off from one of the table, directly or through
// others.
func (j *splitJudge) check(p, now *clusterpb.Partition) error {
	id := keys.PartitionID(p.Id)
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("partition %d, which is said to have split off: %w", p.Id,
			fmt.Errorf(format, args...))
	}
	if p.Keyspace != now.Keyspace || p.Hash != now.Hash || p.PrefixLength != now.PrefixLength ||
		!keys.PartitionSpan(now).ContainsSpan(keys.PartitionSpan(p)) {
		return wrong("its span is %s in keyspace %d, and what split was %s in keyspace %d",
			keys.PartitionSpan(p), p.Keyspace, keys.PartitionSpan(now), now.Keyspace)
	}
	if p.Generation <= now.Generation || p.SplitFrom == 0 {
		return wrong("its generation is %d, and that of what split was %d", p.Generation, now.Generation)
	}
	if id < keys.FirstDataPartition || p.Id >= j.ids.Partition || j.taken[id] {
		return wrong("the id was not given to it")
	}
	if o := j.children[id]; o != nil {
		if o.Partition != p.SplitFrom || o.Keyspace != p.Keyspace || !bytes.Equal(o.SplitKey, p.Start) {
			return wrong("the id is for a split of partition %d at %s", o.Partition,
				keys.Pretty(o.SplitKey))
		}
	} else if err := j.unused(id); err != nil {
		return wrong("%w", err)
	}
	// At the split its replicas were those of the partition that split.
	before := proto.Clone(now).(*clusterpb.Partition)
	before.Id = p.Id
	recovered, err := loadRecovery(j.view, id)
	if err == nil {
		err = plausible(p, before, recovered)
	}
	if err != nil {
		return wrong("%w", err)
	}
	return nil
}

// unused says why an id that no operator has for a child cannot be a child's. There is no such
// operator if the core was recovered from a member that lacked it. The id is looked for in all of
// the table.
func (j *splitJudge) unused(id keys.PartitionID) error {
	there, err := j.server.findPartition(j.view, id)
	if err != nil {
		return err
	}
	if there != nil {
		return fmt.Errorf("the id is that of a partition of keyspace %d", there.Keyspace)
	}
	for kv, err := range j.view.All([]byte(creationPrefix)) {
		if err != nil {
			return err
		}
		c := &serverpb.Creation{}
		if err := c.UnmarshalVT(kv.Value); err != nil {
			return errMalformed(kv.Key, err)
		}
		if uint64(id) >= c.FirstPartition && uint64(id)-c.FirstPartition < c.Partitions {
			return errors.New("the id is for a keyspace that is being made")
		}
	}
	return nil
}

// descend says which of some partitions did not split off from one, or from another one of them.
func descend(from *clusterpb.Partition, pieces []*clusterpb.Partition) error {
	known := map[uint64]bool{from.Id: true}
	for left := pieces; len(left) > 0; {
		var rest []*clusterpb.Partition
		for _, p := range left {
			if known[p.SplitFrom] {
				known[p.Id] = true
			} else {
				rest = append(rest, p)
			}
		}
		if len(rest) == len(left) {
			return fmt.Errorf("partition %d split off from partition %d, which is another one", rest[0].Id,
				rest[0].SplitFrom)
		}
		left = rest
	}
	return nil
}
