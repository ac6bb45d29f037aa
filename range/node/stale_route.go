package node

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// What a refusal tells a sender that routes by an old table.
//
// The replicas of this node know of a split before the core does, and the table knows of partitions
// that have left this node. So both are consulted: for the span of the request, for the span that
// the partition had according to the table, and for the partitions that have split off from it
// here, directly or indirectly. Of two descriptors of a partition the later epoch counts. The
// sender takes all of them at once, and keeps what it knew of keys that none of them holds
// (range/route, layout.go).

// maxCovering bounds the descriptors in a refusal; those nearest to the request come first.
const maxCovering = 64

// covering returns the descriptors that this node knows of the successors of a partition, p first,
// and of the partitions that cover a span of its internal keys.
func (n *Node) covering(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition {
	table, own := n.tables.Load(), n.spans.load(n)
	wide := hull(span, keys.PartitionSpan(p))
	if listed := table.Partition(keys.PartitionID(p.Id)); listed != nil &&
		listed.Keyspace == p.Keyspace {
		wide = hull(wide, keys.PartitionSpan(listed))
	}
	found := map[uint64]*clusterpb.Partition{p.Id: p}
	add := func(d *clusterpb.Partition) {
		if d.Keyspace != p.Keyspace || d.Hash != p.Hash {
			return
		}
		if here := own.by[d.Id]; here != nil && keys.CompareEpochs(d, here) < 0 {
			d = here
		}
		if known := found[d.Id]; known == nil || keys.CompareEpochs(known, d) < 0 {
			found[d.Id] = d
		}
	}
	own.around(span.Start, wide, add)
	own.heirs(p.Id, add)
	table.Around(p.Keyspace, span.Start, wide, maxCovering, add)
	all := slices.Collect(maps.Values(found))
	slices.SortFunc(all, func(a, b *clusterpb.Partition) int {
		far, farther := distance(a, p, span), distance(b, p, span)
		if far == farther && far == behind {
			return bytes.Compare(b.Start, a.Start)
		}
		return cmp.Or(cmp.Compare(far, farther), bytes.Compare(a.Start, b.Start))
	})
	return all[:min(len(all), maxCovering)]
}

// How near a descriptor is to a request.
const (
	itself = iota
	asked
	ahead
	behind
)

// distance returns how near a descriptor is to a request to p for a span.
func distance(d, p *clusterpb.Partition, span keys.Span) int {
	switch {
	case d.Id == p.Id:
		return itself
	case keys.PartitionSpan(d).Overlaps(span):
		return asked
	case bytes.Compare(d.Start, span.Start) > 0:
		return ahead
	}
	return behind
}

// hull returns the smallest span with all keys of two spans of internal keys.
func hull(a, b keys.Span) keys.Span {
	if bytes.Compare(b.Start, a.Start) < 0 {
		a.Start = b.Start
	}
	if len(a.End) > 0 && (len(b.End) == 0 || bytes.Compare(b.End, a.End) > 0) {
		a.End = b.End
	}
	return a
}

// ownSpans caches the descriptors of this node's replicas.
type ownSpans struct {
	mu   sync.Mutex
	made *madeSpans
}

// madeSpans are the descriptors of the registry at one time. Immutable.
type madeSpans struct {
	of   *map[keys.PartitionID]*hosted.Replica
	at   int64 // of Node.now
	cost int64
	// order is sorted by the start of the spans.
	order []*clusterpb.Partition
	by    map[uint64]*clusterpb.Partition
	// from maps a partition to those that have split off from it.
	from map[uint64][]*clusterpb.Partition
}

// spansAge is how long the spans are valid, in nanoseconds, if no replica has come or gone.
const spansAge = 10_000_000

// load returns the spans. Making them takes time in proportion to the number of replicas, so they
// are used for at least ten times as long as that took.
func (s *ownSpans) load(n *Node) *madeSpans {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, of := n.base.Now(), n.replicas.Snapshot()
	if m := s.made; m != nil && (now-m.at < 10*m.cost || m.of == of && now-m.at < spansAge) {
		return m
	}
	m := &madeSpans{of: of, by: make(map[uint64]*clusterpb.Partition, len(*of)),
		from: make(map[uint64][]*clusterpb.Partition)}
	for _, h := range *of {
		if d := h.Replica.Descriptor(); d != nil {
			m.order, m.by[d.Id] = append(m.order, d), d
			if d.SplitFrom != 0 {
				m.from[d.SplitFrom] = append(m.from[d.SplitFrom], d)
			}
		}
	}
	slices.SortFunc(m.order, func(a, b *clusterpb.Partition) int {
		return cmp.Or(bytes.Compare(a.Start, b.Start), cmp.Compare(a.Id, b.Id))
	})
	m.at = n.base.Now()
	m.cost = m.at - now
	s.made = m
	return m
}

// around is like table.Table.Around.
func (m *madeSpans) around(key []byte, span keys.Span, visit func(*clusterpb.Partition)) {
	first := sort.Search(len(m.order), func(i int) bool {
		return bytes.Compare(m.order[i].Start, key) >= 0
	})
	for i := first; i < min(first+maxCovering, len(m.order)); i++ {
		if !keys.PartitionSpan(m.order[i]).Overlaps(span) {
			break
		}
		visit(m.order[i])
	}
	for i := first - 1; i >= max(0, first-maxCovering); i-- {
		if !keys.PartitionSpan(m.order[i]).Overlaps(span) {
			return
		}
		visit(m.order[i])
	}
}

// heirs calls visit for the partitions that have split off from a partition, directly or
// indirectly, up to maxCovering.
func (m *madeSpans) heirs(id uint64, visit func(*clusterpb.Partition)) {
	seen := map[uint64]bool{id: true}
	for due := []uint64{id}; len(due) > 0 && len(seen) <= maxCovering; due = due[1:] {
		for _, d := range m.from[due[0]] {
			if !seen[d.Id] {
				seen[d.Id] = true
				due = append(due, d.Id)
				visit(d)
			}
		}
	}
}
