package store

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// interruptEvery is after how many keys a walk looks whether it is to go on.
const interruptEvery = 256

// scan visits the keys of a span in order, as they were at a revision, until visit says false.
func (r *reader) scan(
	span keys.Span, revision uint64, visit func(*storepb.KeyValue) (bool, error),
) error {
	return r.walk(span, revision, func() part { return wholePair }, visit)
}

// walk is scan for those that do not need all of all pairs: need is asked before each.
func (r *reader) walk(
	span keys.Span, revision uint64, need func() part,
	visit func(*storepb.KeyValue) (bool, error),
) error {
	if span.Empty() {
		return nil
	}
	passing := r.newPassing(span.Start, revision)
	for ok := r.it.SeekGE(r.table(tableVersion, span.Start)); ok; {
		key, at, err := decodeVersionKey(r.it.Key())
		if err != nil || (len(span.End) > 0 && bytes.Compare(key, span.End) >= 0) {
			break // the next table, or the end of the span
		}
		if r.passed++; r.passed%interruptEvery == 0 && r.interrupted != nil {
			if err := r.interrupted(); err != nil {
				passing.ends(key)
				return err
			}
		}
		if end, vacant := passing.vacant(key); vacant {
			if end == nil {
				break
			}
			ok = r.it.SeekGE(r.table(tableVersion, end))
			continue
		}
		if at > revision {
			// Usually few versions are newer; SeekGE to a near key is cheap.
			ok = r.it.SeekGE(r.layout.version(key, revision))
			continue
		}
		kv, err := r.decodeParts(key, at, need())
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
		ok = r.it.NextPrefix()
	}
	if err := r.it.Error(); err != nil {
		return err
	}
	passing.ends(span.End)
	return nil
}

// passing is what a walk passes between two keys.
type passing struct {
	memory   *keycount.Blocks // nil: nothing is remembered
	known    keycount.Vacant
	revision uint64
	// start is where it begins; nil: behind the key last.
	start, last []byte
	// steps is how many deleted keys and vacant spans there were.
	steps int
	// looks: the next key may lie in a vacant span. Behind a key that exists most walks meet another
	// one, and those that do not pass one deleted key more.
	looks bool
}

func (r *reader) newPassing(start []byte, revision uint64) passing {
	p := passing{memory: r.vacant, revision: revision, start: start, looks: true}
	if p.memory != nil {
		p.known = p.memory.Vacant()
	}
	if p.start == nil {
		p.start = []byte{}
	}
	return p
}

// vacant says whether a key that the walk has come to lies in a span without keys, and where that
// ends; nil: nowhere.
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

// ends remembers what was passed, if that was much, up to a key.
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

// begins begins anew behind a key.
func (p *passing) begins(key []byte) {
	p.steps, p.looks, p.start = 0, false, nil
	if p.memory != nil {
		p.last = append(p.last[:0], key...)
	}
}
