package reads

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

const (
	// Above maxReadEntries keys and spans, or maxReadBytes bytes of them, the reads are condensed
	// to about condensedEntries spans that cover them. Then a write between the keys that were read
	// counts as a conflict too.
	maxReadEntries   = 10_000
	maxReadBytes     = 8 << 20
	condensedEntries = 1000
)

// Set is the set of a transaction's reads, which must stay valid until it commits.
type Set struct {
	keyspaces map[keys.KeyspaceID]*keyspaceReads
	entries   int
	bytes     int
	// next is the number of entries at which the reads are condensed again.
	next int
	// recent are keys that are not in keyspaces yet: most reads of many keys are the only read of
	// their transaction or View, and Seen is never called for their keys.
	recent []keyRead
}

// keyRead is a key that was read, and its version.
type keyRead struct {
	keyspace *route.Keyspace
	key      string
	version  hlc.Timestamp
}

// maxRecent bounds the recent keys.
const maxRecent = 256

// keyspaceReads are the reads in one keyspace.
type keyspaceReads struct {
	// partitions is the number of hash partitions; 0 in a range keyspace.
	partitions uint32
	// keys maps each key to the version that was read, zero if there was no value.
	keys map[string]hlc.Timestamp
	// locked are keys under a lock of the transaction.
	locked map[string]bool
	// spans were read in all hash partitions; parts were read in one hash partition each.
	spans []keys.Span
	parts map[uint32][]keys.Span
}

func (s *Set) keyspace(ks *route.Keyspace) *keyspaceReads {
	r := s.keyspaces[ks.ID]
	if r == nil {
		r = &keyspaceReads{keys: make(map[string]hlc.Timestamp), locked: make(map[string]bool)}
		if ks.Hashed() {
			r.partitions = ks.Info.HashPartitions
		}
		if s.keyspaces == nil {
			s.keyspaces = make(map[keys.KeyspaceID]*keyspaceReads)
		}
		s.keyspaces[ks.ID] = r
	}
	return r
}

// Empty reports whether nothing was read.
func (s *Set) Empty() bool { return len(s.keyspaces) == 0 && len(s.recent) == 0 }

// Key adds a key that was read.
func (s *Set) Key(ks *route.Keyspace, key []byte, version hlc.Timestamp) {
	s.settle()
	s.note(ks, string(key), version)
}

func (s *Set) note(ks *route.Keyspace, key string, version hlc.Timestamp) {
	r := s.keyspace(ks)
	if _, there := r.keys[key]; there || r.locked[key] {
		return
	}
	r.keys[key] = version
	s.grow(1, len(key))
}

// Pairs adds keys that were read.
func (s *Set) Pairs(ks *route.Keyspace, n int, at func(i int) (key []byte, version hlc.Timestamp)) {
	size := 0
	for i := range n {
		key, _ := at(i)
		size += len(key)
	}
	var all strings.Builder // of which each key is a part
	all.Grow(size)
	for i := range n {
		key, _ := at(i)
		all.Write(key)
	}
	rest := all.String()
	s.recent = slices.Grow(s.recent, n)
	for i := range n {
		key, version := at(i)
		s.recent = append(s.recent, keyRead{keyspace: ks, key: rest[:len(key)], version: version})
		rest = rest[len(key):]
	}
	if len(s.recent) > maxRecent {
		s.settle()
	}
}

// settle moves the recent keys to their keyspaces.
func (s *Set) settle() {
	recent := s.recent
	s.recent = nil
	for i := range recent {
		s.note(recent[i].keyspace, recent[i].key, recent[i].version)
	}
}

// Seen returns the version of a key that was read, unless the key was condensed.
func (s *Set) Seen(ks *route.Keyspace, key []byte) (version hlc.Timestamp, seen bool) {
	s.settle()
	r := s.keyspaces[ks.ID]
	if r == nil {
		return hlc.Timestamp{}, false
	}
	version, seen = r.keys[string(key)]
	return version, seen
}

// Lock adds a key that was read under a lock of the transaction.
func (s *Set) Lock(ks *route.Keyspace, key []byte) {
	s.settle()
	r := s.keyspace(ks)
	if _, there := r.keys[string(key)]; there {
		delete(r.keys, string(key))
		s.grow(-1, -len(key))
	}
	if !r.locked[string(key)] {
		r.locked[string(key)] = true
		s.bytes += len(key)
	}
}

// Again makes a locked key subject to validation, like a key without a lock.
func (s *Set) Again(ks *route.Keyspace, key []byte, version hlc.Timestamp) {
	s.settle()
	r := s.keyspace(ks)
	if _, there := r.keys[string(key)]; !there {
		r.keys[string(key)] = version
		s.grow(1, len(key))
	}
}

// IsLocked reports whether the transaction holds a lock on the key.
func (s *Set) IsLocked(id keys.KeyspaceID, key []byte) bool {
	r := s.keyspaces[id]
	return r != nil && r.locked[string(key)]
}

// Locks returns the number of locked keys.
func (s *Set) Locks() (n int) {
	for _, r := range s.keyspaces {
		n += len(r.locked)
	}
	return n
}

// Span adds a span that was read. It takes over the span.
func (s *Set) Span(ks *route.Keyspace, span keys.Span) {
	s.settle()
	r := s.keyspace(ks)
	if span.Empty() {
		return
	}
	if n := len(r.spans); n > 0 {
		last := &r.spans[n-1]
		if last.ContainsSpan(span) {
			return
		}
		if len(last.End) > 0 && bytes.Equal(last.End, span.Start) {
			last.End = span.End
			return
		}
	}
	r.spans = append(r.spans, span)
	s.grow(1, len(span.Start)+len(span.End))
}

func (s *Set) grow(entries, size int) {
	s.entries += entries
	s.bytes += size
	if s.entries > max(maxReadEntries, s.next) ||
		(s.bytes > maxReadBytes && s.entries > max(condensedEntries, s.next)) {
		s.condense()
	}
}

// condense replaces the reads by fewer spans that cover them.
func (s *Set) condense() {
	s.entries, s.bytes = 0, 0
	for _, r := range s.keyspaces {
		r.condense(max(1, condensedEntries/len(s.keyspaces)))
		s.entries += len(r.spans)
		for k := range r.locked {
			s.bytes += len(k)
		}
		for _, span := range r.spans {
			s.bytes += len(span.Start) + len(span.End)
		}
		for _, part := range r.parts {
			s.entries += len(part)
			for _, span := range part {
				s.bytes += len(span.Start) + len(span.End)
			}
		}
	}
	s.next = 2 * s.entries
}

func (r *keyspaceReads) condense(limit int) {
	if r.partitions == 0 {
		for k := range r.keys {
			r.spans = append(r.spans, keys.Point([]byte(k)))
		}
	} else {
		if r.parts == nil {
			r.parts = make(map[uint32][]keys.Span)
		}
		for k := range r.keys {
			h := keys.HashPartition([]byte(k), r.partitions)
			r.parts[h] = append(r.parts[h], keys.Point([]byte(k)))
		}
		for h := range r.parts {
			r.parts[h] = Cover(r.parts[h], max(1, limit/len(r.parts)))
		}
	}
	clear(r.keys)
	r.spans = Cover(r.spans, limit)
}

// Cover returns at most limit spans, in order, that cover all given spans.
func Cover(spans []keys.Span, limit int) []keys.Span {
	slices.SortFunc(spans, func(a, b keys.Span) int { return bytes.Compare(a.Start, b.Start) })
	spans = join(spans, func(last, next keys.Span) bool {
		return len(last.End) == 0 || bytes.Compare(next.Start, last.End) <= 0
	})
	if len(spans) <= limit {
		return spans
	}
	// Join neighbours, as many as necessary.
	each, i := (len(spans)+limit-1)/limit, 0
	return join(spans, func(keys.Span, keys.Span) bool {
		i++
		return i%each != 0
	})
}

// join joins neighbours for which with returns true.
func join(spans []keys.Span, with func(last, next keys.Span) bool) []keys.Span {
	var out []keys.Span
	for i, s := range spans {
		if i > 0 && with(out[len(out)-1], s) {
			last := &out[len(out)-1]
			if len(last.End) > 0 && (len(s.End) == 0 || bytes.Compare(s.End, last.End) > 0) {
				last.End = s.End
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// All returns all reads as committer.Reads, in a deterministic order.
func (s *Set) All() (out committer.Reads) {
	s.settle()
	for id, r := range s.keyspaces {
		for k := range r.keys {
			out.Keys = append(out.Keys, committer.Key{Keyspace: id, Key: []byte(k)})
		}
		for k := range r.locked {
			out.Locked = append(out.Locked, committer.Key{Keyspace: id, Key: []byte(k)})
		}
		for _, span := range r.spans {
			out.Spans = append(out.Spans,
				committer.Span{Keyspace: id, Hash: committer.AllPartitions, Span: span})
		}
		for h, part := range r.parts {
			for _, span := range part {
				out.Spans = append(out.Spans, committer.Span{Keyspace: id, Hash: int(h), Span: span})
			}
		}
	}
	byKey := func(a, b committer.Key) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), bytes.Compare(a.Key, b.Key))
	}
	slices.SortFunc(out.Keys, byKey)
	slices.SortFunc(out.Locked, byKey)
	slices.SortFunc(out.Spans, func(a, b committer.Span) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Hash, b.Hash),
			bytes.Compare(a.Start, b.Start))
	})
	return out
}
