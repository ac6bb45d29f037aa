package server

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// layout knows which partitions are neighbours, according to the table.
type layout struct {
	// starts has the partitions by the internal keys at which they begin.
	starts *tree.Edit[string, keys.PartitionID]
	// spans has the spans of the partitions. generations has the generations of their descriptors.
	// resized has the times at which they last split, split off or merged.
	spans       map[keys.PartitionID]layoutSpan
	generations map[keys.PartitionID]uint64
	resized     map[keys.PartitionID]time.Time
}

type layoutSpan struct {
	start, end string
	prefix     int
}

func newLayout(resized map[keys.PartitionID]time.Time) layout {
	return layout{starts: tree.NewOrdered[string, keys.PartitionID]().Edit(),
		spans:       map[keys.PartitionID]layoutSpan{},
		generations: map[keys.PartitionID]uint64{}, resized: resized}
}

// set adds or replaces a descriptor of the table.
func (l *layout) set(d *clusterpb.Partition) {
	id := keys.PartitionID(d.Id)
	span := layoutSpan{start: string(d.Start), end: string(d.End), prefix: int(d.PrefixLength)}
	if before, known := l.spans[id]; known {
		if before == span {
			return
		}
		l.drop(id)
	}
	l.spans[id] = span
	l.starts.Set(span.start, id)
}

// drop removes a partition.
func (l *layout) drop(id keys.PartitionID) {
	span, known := l.spans[id]
	if !known {
		return
	}
	delete(l.spans, id)
	if at, ok := l.starts.View().Get(span.start); ok && at == id {
		l.starts.Delete(span.start)
	}
}

// neighbours returns the partitions of the same keyspace and hash number to the left and to the
// right of a partition. 0 means that there is no neighbour.
func (l *layout) neighbours(id keys.PartitionID) (left, right keys.PartitionID) {
	span, known := l.spans[id]
	if !known {
		return 0, 0
	}
	prefix := min(span.prefix, len(span.start))
	same := func(other keys.PartitionID) bool {
		s := l.spans[other]
		return s.prefix == span.prefix && len(s.start) >= prefix &&
			s.start[:prefix] == span.start[:prefix]
	}
	if at, ok := l.starts.View().Below(span.start); ok && same(at) && l.spans[at].end == span.start {
		left = at
	}
	if at, ok := l.starts.View().Get(span.end); ok && same(at) {
		right = at
	}
	return left, right
}

// around returns the surroundings of a partition: its neighbours and its recent history. The caller
// holds mu.
func (c *scheduler) around(id keys.PartitionID) facts.Around {
	out := facts.Around{Resized: c.layout.resized[id], Ended: c.operators.ended[id]}
	out.Left, out.Right = c.layout.neighbours(id)
	return out
}

// arrange updates the layout from an update of the table. It runs before the State is told of any
// partition of the update, because the State needs the current neighbours of each. A partition
// whose generation has changed has split or merged. For partitions that the table had when this
// leadership began, the times of splits and merges come from events. The caller holds mu.
func (c *scheduler) arrange(u *clusterpb.TableUpdate, now time.Time) (touched []keys.PartitionID) {
	c.noteMerges(u, now)
	moved := map[keys.PartitionID]struct{}{}
	listed := make(map[keys.PartitionID]struct{}, len(u.Partitions))
	for _, d := range u.Partitions {
		id := keys.PartitionID(d.Id)
		listed[id] = struct{}{}
		before, known := c.layout.generations[id]
		switch {
		case c.complete && (known && before != d.Generation || !known && d.SplitFrom != 0):
			c.layout.resized[id] = now
		case !known && d.SplitFrom != 0 && c.layout.resized[id].IsZero():
			if at := c.layout.resized[keys.PartitionID(d.SplitFrom)]; !at.IsZero() {
				c.layout.resized[id] = at
			}
		}
		c.layout.generations[id] = d.Generation
		c.noteNeighbours(id, moved)
		c.layout.set(d)
		c.noteNeighbours(id, moved)
	}
	for _, id := range u.RemovedPartitions {
		id := keys.PartitionID(id)
		c.noteNeighbours(id, moved)
		c.layout.drop(id)
		delete(c.layout.generations, id)
		delete(c.layout.resized, id)
	}
	for id := range moved {
		if _, told := listed[id]; !told && id != 0 {
			touched = append(touched, id)
		}
	}
	slices.Sort(touched)
	return touched
}

// noteNeighbours adds the neighbours of a partition to a set. If the partition changes, so do the
// neighbours of its neighbours.
func (c *scheduler) noteNeighbours(id keys.PartitionID, into map[keys.PartitionID]struct{}) {
	left, right := c.layout.neighbours(id)
	into[left], into[right] = struct{}{}, struct{}{}
}
