package tables

import (
	"bytes"
	"math"

	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// InterruptEvery is the number of keys after which a walk checks whether it should continue.
const InterruptEvery = 256

// Scan visits the keys of a span in order, as of a revision, until visit returns false.
func (r *Reader) Scan(
	span keys.Span, revision uint64, visit func(*storepb.KeyValue) (bool, error),
) error {
	return r.Walk(span, revision, func() Part { return WholePair }, visit)
}

// Walk is Scan for callers that need only parts of pairs: need is called before each pair.
func (r *Reader) Walk(
	span keys.Span, revision uint64, need func() Part,
	visit func(*storepb.KeyValue) (bool, error),
) error {
	if span.Empty() {
		return nil
	}
	passing := r.newPassing(span.Start, revision)
	for ok := r.Iterator.SeekGE(r.Table(TableVersion, span.Start)); ok; {
		key, at, err := DecodeVersionKey(r.Iterator.Key())
		if err != nil || (len(span.End) > 0 && bytes.Compare(key, span.End) >= 0) {
			break // the next table, or the end of the span
		}
		if r.Passed++; r.Passed%InterruptEvery == 0 && r.Interrupted != nil {
			if err := r.Interrupted(); err != nil {
				passing.ends(key)
				return err
			}
		}
		if end, vacant := passing.vacant(key); vacant {
			if end == nil {
				break
			}
			ok = r.Iterator.SeekGE(r.Table(TableVersion, end))
			continue
		}
		if at > revision {
			// Usually few versions are newer; SeekGE to a near key is cheap.
			ok = r.Iterator.SeekGE(r.Layout.Version(key, revision))
			continue
		}
		kv, err := r.DecodeParts(key, at, need())
		if err != nil {
			return err
		}
		if kv == nil {
			passing.deleted()
		} else {
			passing.ends(key)
			passing.begins(key)
			if more, err := visit(kv); err != nil || !more {
				return err
			}
		}
		ok = r.Iterator.NextPrefix()
	}
	if err := r.Iterator.Error(); err != nil {
		return err
	}
	passing.ends(span.End)
	return nil
}

// passing tracks the gap that a walk crosses between two existing keys: deleted keys, and spans
// known to have no keys.
type passing struct {
	memory   *keycount.Blocks // nil if no gaps are remembered
	known    keycount.Vacant
	revision uint64
	// start is where the gap begins; nil if the gap begins right after the key last.
	start, last []byte
	// steps counts the deleted keys and vacant spans.
	steps int
	// looks is set if the next key is looked up in the vacant spans. Right after an existing key it
	// is not: most walks meet another existing key there.
	looks bool
}

func (r *Reader) newPassing(start []byte, revision uint64) passing {
	p := passing{memory: r.Vacant, revision: revision, start: start, looks: true}
	if p.memory != nil {
		p.known = p.memory.Vacant()
	}
	if p.start == nil {
		p.start = []byte{}
	}
	return p
}

// vacant reports whether the walk's present key lies in a span without keys, and the end of the
// span; nil if the span has no end.
func (p *passing) vacant(key []byte) (end []byte, vacant bool) {
	if !p.looks {
		return nil, false
	}
	if end, vacant = p.known.End(key, p.revision); vacant {
		p.steps++
	}
	return end, vacant
}

func (p *passing) deleted() {
	p.steps++
	p.looks = true
}

// ends ends the gap at a key, and remembers it if it is large.
func (p *passing) ends(key []byte) {
	if p.memory == nil || p.steps < p.memory.VacantAfter() {
		return
	}
	start := p.start
	if start == nil {
		start = append(p.last, 0)
	}
	p.memory.FoundVacant(keys.Span{Start: start, End: key}, p.revision, p.steps)
}

// begins begins a new gap after a key.
func (p *passing) begins(key []byte) {
	p.steps, p.looks, p.start = 0, false, nil
	if p.memory != nil {
		p.last = append(p.last[:0], key...)
	}
}

const (
	// NotedKeys is the number of keys that NoteKeys reads with one iterator.
	NotedKeys = 4096
	// notedBytes is the number of bytes of values after which NoteKeys ends too.
	notedBytes = 4 << 20
)

// NoteKeys adds a piece of the keys to f, and returns the beginning of the next piece; nil after
// the last.
//
// INVARIANT: the next piece begins before all versions that its first key may ever have. By then
// the version seen here may be gone, and newer versions sort before it.
func (r *Reader) NoteKeys(f *newest.Filling, from []byte) (next []byte, err error) {
	end := r.End(TableVersion)
	n, size := 0, 0
	for ok := r.Seek(from, end); ok; n++ {
		key, revision, err := DecodeVersionKey(r.Iterator.Key())
		if err != nil {
			return nil, err
		}
		if n == NotedKeys || size > notedBytes {
			return r.Layout.Version(key, math.MaxUint64), nil
		}
		value := r.Iterator.LazyValue()
		size += value.Len()
		kv, err := r.DecodeParts(key, revision, MereKey)
		if err != nil {
			return nil, err
		}
		if kv != nil {
			f.Key(key)
		}
		ok = r.Iterator.NextPrefix() && bytes.Compare(r.Iterator.Key(), end) < 0
	}
	return nil, r.Iterator.Error()
}
