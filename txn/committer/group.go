package committer

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// chunkKeys bounds the keys of one request and, like oneBytes, of a one-phase commit. A value
	// larger than the bytes allow has its own request.
	chunkKeys = 1000
	oneBytes  = 1 << 20
	// chunkBytes bounds the bytes of a request that acquires locks, if there are several.
	chunkBytes = 256 << 10
	// maxParallel bounds the requests of one transaction that run at a time, and maxBytes the bytes
	// of their locks (a single request may be larger): other clients' requests must not wait behind
	// tens of megabytes in every log of the cluster.
	maxParallel = 32
	maxBytes    = 2 << 20
	// From manyLocks locks on, only fewParallel partitions are asked at a time to resolve them. To
	// acquire that many locks, or more than maxBytes, the requests are bounded by fewKeys and
	// fewBytes, and few run at a time, or one with a pause before the next (see pacing). A
	// request of 12 KiB keeps two processors with three replicas busy for half a millisecond, one
	// of 64 KiB for more than two.
	manyLocks   = 10_000
	fewParallel = 2
	fewKeys     = 48
	fewBytes    = 12 << 10
)

// mutation is a mutation and its partition.
type mutation struct {
	keyspace keys.KeyspaceID
	*kvpb.Mutation
}

func (m mutation) size() int { return len(m.Key) + len(m.Value) }

// chunk is a group of mutations of one partition that one request carries.
type chunk struct {
	place     Place
	mutations []*kvpb.Mutation
	// places are the indices of the mutations in the list that was grouped.
	places []int
	bytes  int
}

// fits reports whether the chunk may go to p.
func (c *chunk) fits(p Place) bool {
	return p.same(c.place) || p.holds(c.place, func(yield func([]byte) bool) {
		for _, m := range c.mutations {
			if !yield(m.Key) {
				return
			}
		}
	})
}

// holds reports whether p holds the keys, which lie in the partition from.
func (p Place) holds(from Place, userKeys func(yield func([]byte) bool)) bool {
	if p.Hash != from.Hash {
		return false
	}
	for k := range userKeys {
		if !p.Span.Contains(k) {
			return false
		}
	}
	return true
}

// chunks groups mutations by partition, in the order of each partition's first mutation. Each chunk
// has at most most mutations and limit bytes.
func (c *Committer) chunks(ctx context.Context, all []mutation, most, limit int) ([]*chunk, error) {
	var out []*chunk
	open := make(map[keys.PartitionID]*chunk)
	for i, m := range all {
		p, err := c.sender.Locate(ctx, Key{m.keyspace, m.Key})
		if err != nil {
			return nil, err
		}
		g := open[p.Partition]
		if g == nil || !g.place.same(p) || len(g.mutations) == most || g.bytes+m.size() > limit {
			g = &chunk{place: p}
			open[p.Partition] = g
			out = append(out, g)
		}
		g.mutations = append(g.mutations, m.Mutation)
		g.places = append(g.places, i)
		g.bytes += m.size()
	}
	return out, nil
}

// readChunk is a group of reads of one partition that one request carries.
type readChunk struct {
	place Place
	set   kvpb.ReadSet
	bytes int
}

// key returns a key of the chunk, by which its request finds the partition.
func (r *readChunk) key() []byte {
	if len(r.set.Keys) > 0 {
		return r.set.Keys[0]
	}
	return r.set.Spans[0].Start
}

func (r *readChunk) fits(p Place) bool {
	if p.same(r.place) {
		return true
	}
	if p.Hash != r.place.Hash {
		return false
	}
	for _, k := range r.set.Keys {
		if !p.Span.Contains(k) {
			return false
		}
	}
	for _, s := range r.set.Spans {
		if !p.Span.ContainsSpan(keys.Span{Start: s.Start, End: s.End}) {
			return false
		}
	}
	return true
}

// add puts the reads of a chunk back, so that they can be grouped anew.
func (r *Reads) add(c *readChunk) {
	for _, k := range c.set.Keys {
		r.Keys = append(r.Keys, Key{c.place.Keyspace, k})
	}
	for _, s := range c.set.Spans {
		r.Spans = append(r.Spans,
			Span{c.place.Keyspace, c.place.Hash, keys.Span{Start: s.Start, End: s.End}})
	}
	if c.set.Leadership != nil {
		if r.Leaderships == nil {
			r.Leaderships = make(map[keys.PartitionID]*kvpb.Leadership)
		}
		r.Leaderships[c.place.Partition] = c.set.Leadership
	}
}

// readChunks groups reads by partition. A span appears in every partition that it overlaps, clipped
// to the partition.
func (c *Committer) readChunks(ctx context.Context, userKeys []Key,
	spans []Span) ([]*readChunk, error) {
	var out []*readChunk
	open := make(map[keys.PartitionID]*readChunk)
	in := func(p Place, size int) *readChunk {
		g := open[p.Partition]
		if g == nil || !g.place.same(p) || len(g.set.Keys)+len(g.set.Spans) == chunkKeys ||
			g.bytes+size > oneBytes {
			g = &readChunk{place: p}
			open[p.Partition] = g
			out = append(out, g)
		}
		g.bytes += size
		return g
	}
	for _, k := range userKeys {
		p, err := c.sender.Locate(ctx, k)
		if err != nil {
			return nil, err
		}
		g := in(p, len(k.Key))
		g.set.Keys = append(g.set.Keys, k.Key)
	}
	for _, s := range spans {
		places, err := c.sender.Overlapping(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			clipped := s.Span.Intersect(p.Span)
			if clipped.Empty() {
				continue
			}
			g := in(p, len(clipped.Start)+len(clipped.End))
			g.set.Spans = append(g.set.Spans, &kvpb.KeySpan{Start: clipped.Start, End: clipped.End})
		}
	}
	return out, nil
}

// under adds to the chunks the leaderships of reads under volatile locks. It fails with ErrConflict
// if no chunk has a leadership's partition: the partition has changed.
func (r *Reads) under(chunks []*readChunk) error {
	if len(r.Leaderships) == 0 {
		return nil
	}
	named := make(map[keys.PartitionID]bool, len(r.Leaderships))
	for _, c := range chunks {
		if l := r.Leaderships[c.place.Partition]; l != nil && len(c.set.Keys) > 0 {
			c.set.Leadership = l
			named[c.place.Partition] = true
		}
	}
	if len(named) < len(r.Leaderships) {
		return errLost()
	}
	return nil
}

// errLost returns the error of reads whose volatile locks are lost.
func errLost() error {
	return &Error{Kind: ErrConflict, LeaderChanged: true}
}
