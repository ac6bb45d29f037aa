package server

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// offered returns the partitions of a report that split off, by id. The partitions that the table
// has already are returned separately, as known.
func (j *spanJudge) offered(splitOff []*clusterpb.Partition,
) (offered, known map[uint64]*clusterpb.Partition, err error) {
	offered = make(map[uint64]*clusterpb.Partition, len(splitOff))
	known = map[uint64]*clusterpb.Partition{}
	for _, p := range splitOff {
		if err := keys.ValidatePartition(p); err != nil {
			return nil, nil, err
		}
		there, _, err := meta.LoadPartition(j.view, keys.KeyspaceID(p.Keyspace), keys.PartitionID(p.Id))
		switch {
		case err != nil:
			return nil, nil, err
		case there != nil:
			known[p.Id] = p
		case offered[p.Id] != nil:
			return nil, nil, fmt.Errorf("partition %d split off twice", p.Id)
		default:
			offered[p.Id] = p
		}
	}
	return offered, known, nil
}

// pieceAt returns the new partition that begins at a key. It comes from the partitions that the
// report offers, or from the orphans.
func (j *spanJudge) pieceAt(at []byte, w *window,
	offered map[uint64]*clusterpb.Partition) (*clusterpb.Partition, error) {
	now := w.old[0]
	var found *clusterpb.Partition
	for _, p := range offered {
		if !bytes.Equal(p.Start, at) || w.subsumed(p) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("partitions %d and %d, which split off, both begin at %s", found.Id,
				p.Id, keys.Pretty(keys.UserKey(now, at)))
		}
		found = p
	}
	if found != nil {
		return found, j.check(found, w)
	}
	for _, p := range j.orphans {
		if bytes.Equal(p.Start, at) && offered[p.Id] == nil && j.check(p, w) == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: what begins at %s", errIncomplete,
		keys.Pretty(keys.UserKey(now, at)))
}

// check returns an error if a partition cannot have split off, directly or through others, from a
// partition of the window.
func (j *spanJudge) check(p *clusterpb.Partition, w *window) error {
	now := w.old[0]
	id := keys.PartitionID(p.Id)
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("partition %d, which is said to have split off: %w", p.Id,
			fmt.Errorf(format, args...))
	}
	if p.Keyspace != now.Keyspace || p.Hash != now.Hash || p.PrefixLength != now.PrefixLength ||
		!(keys.Span{Start: now.Start, End: w.end}).Contains(p.Start) {
		return wrong("its span is %s in keyspace %d, and what split was %s in keyspace %d",
			keys.PartitionSpan(p), p.Keyspace, keys.PartitionSpan(now), now.Keyspace)
	}
	for _, old := range w.old {
		if keys.PartitionSpan(old).Overlaps(keys.PartitionSpan(p)) &&
			(p.Generation <= old.Generation || p.SplitFrom == 0) {
			return wrong("its generation is %d, and that of what split was %d",
				p.Generation, old.Generation)
		}
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
	// At the time of the split, the partition had the replicas of the partition that it split from, or
	// of one that was merged into that partition.
	recovered, err := meta.LoadRecovery(j.view, id)
	if err != nil {
		return err
	}
	for _, old := range w.old {
		before := proto.Clone(old).(*clusterpb.Partition)
		before.Id = p.Id
		if err = plausible(p, before, recovered); err == nil {
			return nil
		}
	}
	return wrong("%w", err)
}

// unused returns an error if an id cannot be the id of a child, although no operator has reserved
// it. An operator may be missing if the core was recovered from a member that lacked it. unused
// searches the whole table for the id.
func (j *spanJudge) unused(id keys.PartitionID) error {
	there, err := j.server.operators.Find(j.view, id)
	if err != nil {
		return err
	}
	if there != nil {
		return fmt.Errorf("the id is that of a partition of keyspace %d", there.Keyspace)
	}
	for c, err := range meta.All[serverpb.Creation](j.view, []byte(meta.CreationPrefix)) {
		if err != nil {
			return err
		}
		if uint64(id) >= c.FirstPartition && uint64(id)-c.FirstPartition < c.Partitions {
			return errors.New("the id is for a keyspace that is being made")
		}
	}
	return nil
}

// descend returns an error if one of the pieces did not split off from the given partitions or from
// another piece.
func descend(from, pieces []*clusterpb.Partition) error {
	known := map[uint64]bool{}
	for _, p := range from {
		known[p.Id] = true
	}
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
			return fmt.Errorf("partition %d split off from partition %d, which is another one",
				rest[0].Id, rest[0].SplitFrom)
		}
		left = rest
	}
	return nil
}
