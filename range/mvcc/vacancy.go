package mvcc

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
)

// vacancy lets a cursor pass over spans that are known to be vacant, and learn new ones.
//
// INVARIANT: the result of a scan does not depend on vacancy. The cursor uses a span only if the
// scan's timestamp, and the time with which expiries are compared, are at or above Since.
type vacancy struct {
	memory *vacant.Memory
	// after is the number of consecutive keys without a value after which a scan learns; 0 means
	// never. From then on the scan reads with its own iterator, and begins again with the first of
	// these keys.
	after int
	// at is compared with Since; known are the spans as of the beginning of the scan, or of walk.
	at    hlc.Timestamp
	known []vacant.Span
	// boundary is where the next known span begins in the order of the scan: its start, or its end
	// in reverse. Keys before boundary need no lookup. nil means unknown.
	boundary []byte
	// waits is the highest timestamp of the versions with commit wait in the spans passed over.
	waits hlc.Timestamp
	// skipped counts the keys in the spans that the last call of above or below joined.
	skipped int

	// walk is set while the cursor learns; late is set once it can no longer learn.
	walk *vacant.Walk
	late bool
	// run counts the consecutive keys without a value, up to the last one that was passed. The
	// first of them is first, in the order of the scan; since and waiting are as in vacant.Span.
	run            int
	first          []byte
	since, waiting hlc.Timestamp
	// until is the key from which the cursor has gone back to the first key of its run; empty once
	// it has reached that key again. The page must not end before until: rows of other cursors up
	// to there have been emitted.
	until []byte
}

// returns reports whether the cursor stands on a key, up to until, on which it has stood before.
func (c *cursor) returns() bool {
	n := &c.vacancy
	if len(n.until) == 0 {
		return false
	}
	at := bytes.Compare(c.key(), n.until)
	if !c.reverse && at <= 0 || c.reverse && at >= 0 {
		return true
	}
	n.until = n.until[:0]
	return false
}

// passOver moves a cursor that stands on a key of a vacant span past the span, and looks at the
// next key.
func (c *cursor) passOver() error {
	for c.on {
		i := c.inVacant()
		if i < 0 {
			return nil
		}
		c.endRun(c.key())
		c.past, c.vacancy.skipped = false, 0
		var to []byte
		if c.reverse {
			to = c.vacancy.below(i)
		} else {
			to = c.vacancy.above(i)
		}
		if invariants.Enabled && passed.Due(4) {
			c.checkInvariantVacant(to)
		}
		c.seek = keys.AppendDataKey(c.seek[:0], to)
		if c.reverse {
			c.on = c.iter.SeekLT(c.seek)
		} else {
			c.on = c.iter.SeekGE(c.seek)
		}
		c.vacancy.memory.Passed(c.vacancy.skipped)
		if !c.on {
			return nil
		}
		if err := c.look(); err != nil {
			return err
		}
	}
	return nil
}

// passed counts the spans that cursors pass over, for checkInvariantVacant.
var passed invariants.Every

// checkInvariantVacant checks that no key between the cursor and an internal key has a value at the
// scan's timestamp. It moves the iterator, and looks at a bounded number of versions.
func (c *cursor) checkInvariantVacant(to []byte) {
	var newest []byte
	for range 16 * invariants.Small {
		prefix := dataPrefix(c.iter.Key())
		at := bytes.Compare(prefix[1:len(prefix)-1], to)
		if !c.reverse && at >= 0 || c.reverse && at < 0 {
			return
		}
		if c.reverse {
			// Each key is checked from its oldest version on.
			first := bytes.Clone(prefix)
			c.checkInvariantNoValue(first)
			if !c.iter.SeekLT(first) {
				return
			}
			continue
		}
		newest = append(newest[:0], prefix...)
		c.checkInvariantNoValue(newest)
		if !c.iter.Valid() {
			return
		}
		for bytes.Equal(dataPrefix(c.iter.Key()), newest) {
			if !c.iter.NextPrefix() {
				return
			}
		}
	}
}

// checkInvariantNoValue checks that a key, as a prefix of data keys, has no value at the scan's
// timestamp.
func (c *cursor) checkInvariantNoValue(prefix []byte) {
	at := c.vacancy.at
	if !c.iter.SeekGE(keys.AppendTimestamp(bytes.Clone(prefix), at)) ||
		!bytes.Equal(dataPrefix(c.iter.Key()), prefix) {
		return
	}
	_, v, err := decode(c.iter)
	invariants.Check(err != nil || !v.LiveAt(at),
		"%s lies in a span that is taken for vacant at %s, and has a value of %s",
		keys.PrettyState(prefix), at, v.Timestamp)
}

// inVacant returns the index of the known span with the key on which the cursor stands, if the scan
// can pass over the span; -1 if there is none.
func (c *cursor) inVacant() int {
	v, key := &c.vacancy, c.key()
	if v.boundary != nil {
		if at := bytes.Compare(key, v.boundary); !c.reverse && at < 0 || c.reverse && at >= 0 {
			return -1
		}
	}
	i, inside := slices.BinarySearchFunc(v.known, key, func(s vacant.Span, key []byte) int {
		switch {
		case bytes.Compare(s.End, key) <= 0:
			return -1
		case bytes.Compare(key, s.Start) < 0:
			return 1
		}
		return 0
	})
	switch {
	case inside && !v.at.Less(v.known[i].Since):
		v.boundary = nil
		return i
	case inside && c.reverse:
		v.boundary = v.known[i].Start
	case inside:
		v.boundary = v.known[i].End
	case c.reverse && i > 0:
		v.boundary = v.known[i-1].End
	case !c.reverse && i < len(v.known):
		v.boundary = v.known[i].Start
	default:
		v.known = nil
	}
	return -1
}

// above returns the end of the vacant span i, or of the last span that follows it without a gap.
func (v *vacancy) above(i int) []byte {
	for ; ; i++ {
		s := &v.known[i]
		v.waits = hlc.Max(v.waits, s.Waits)
		v.skipped += s.Keys
		if i+1 == len(v.known) || !bytes.Equal(v.known[i+1].Start, s.End) ||
			v.at.Less(v.known[i+1].Since) {
			return s.End
		}
	}
}

// below returns the start of the vacant span i, or of the first span before it without a gap.
func (v *vacancy) below(i int) []byte {
	for ; ; i-- {
		s := &v.known[i]
		v.waits = hlc.Max(v.waits, s.Waits)
		v.skipped += s.Keys
		if i == 0 || !bytes.Equal(v.known[i-1].End, s.Start) || v.at.Less(v.known[i-1].Since) {
			return s.Start
		}
	}
}

// dead records that the key on which the cursor stands has no value, now and at every later
// timestamp, as its newest version shows. It returns true if the cursor has begun to learn, and
// stands on the first key of the run again.
func (c *cursor) dead(v *Version) (again bool, err error) {
	n := &c.vacancy
	if n.after == 0 {
		return false, nil
	}
	if n.run == 0 {
		n.first = append(n.first[:0], c.key()...)
		n.since, n.waiting = hlc.Timestamp{}, hlc.Timestamp{}
	}
	n.run++
	n.since = hlc.Max(n.since, v.Timestamp)
	if v.Expires != 0 {
		n.since = hlc.Max(n.since, hlc.Timestamp{Wall: v.Expires})
	}
	if v.CommitWait {
		n.waiting = hlc.Max(n.waiting, v.Timestamp)
	}
	if n.run != n.after || n.walk != nil || n.late {
		return false, nil
	}
	if n.walk = n.memory.Walk(); n.walk == nil {
		n.late = true
		return false, nil
	}
	return true, c.walkAgain()
}

// walkAgain makes the cursor read the present state, from the first key of the run. Every iterator
// opened after the scan began shows the same state at the scan's timestamp.
func (c *cursor) walkAgain() error {
	n := &c.vacancy
	n.known, n.boundary, n.run = n.memory.Spans(), nil, 0
	iter, err := c.reader.NewIter(&c.options)
	if err != nil {
		return err
	}
	former, kept := c.iter, c.kept
	c.iter, c.kept, c.past = iter, false, false
	if !kept {
		if err := former.Close(); err != nil {
			return err
		}
	}
	if c.reverse {
		c.seek = keys.AppendDataKey(c.seek[:0], keys.Next(n.first))
		c.on = c.iter.SeekLT(c.seek)
	} else {
		c.seek = keys.AppendDataKey(c.seek[:0], n.first)
		c.on = c.iter.SeekGE(c.seek)
	}
	return nil
}

// endRun ends a run of keys without values before a key, in the order of the scan; a nil key means
// the end of the scanned span.
func (c *cursor) endRun(key []byte) {
	n := &c.vacancy
	run := n.run
	n.run = 0
	if n.walk == nil || run < n.after {
		return
	}
	s := vacant.Span{Since: n.since, Waits: n.waiting, Keys: run}
	switch {
	case !c.reverse && key == nil:
		s.Start, s.End = bytes.Clone(n.first), bytes.Clone(c.span.End)
	case !c.reverse:
		s.Start, s.End = bytes.Clone(n.first), bytes.Clone(key)
	case key == nil:
		s.Start, s.End = bytes.Clone(c.span.Start), keys.Next(n.first)
	default:
		s.Start, s.End = keys.Next(key), keys.Next(n.first)
	}
	if len(s.End) > 0 && bytes.Compare(s.Start, s.End) < 0 {
		n.walk.Found(s)
	}
}

// endVacancy ends the learning of a cursor. If ok is false the scan has failed, and nothing is
// learned.
func (c *cursor) endVacancy(ok bool) {
	n := &c.vacancy
	if n.walk == nil {
		return
	}
	if ok {
		if c.on {
			c.endRun(c.key())
		} else {
			c.endRun(nil)
		}
	}
	n.walk.End()
	n.walk = nil
}

// Written returns the versions in a batch, for vacant.Memory.Wrote. The keys alias the batch. known
// is false if the batch may contain further versions.
func Written(b *engine.StateBatch) (writes []vacant.Write, known bool) {
	for r := b.Reader(); ; {
		kind, stateKey, value, ok, err := r.Next()
		switch {
		case err != nil:
			return nil, false
		case !ok:
			return writes, true
		case kind == pebble.InternalKeyKindDelete:
			continue // the removal of a garbage version, or of another record
		case kind != pebble.InternalKeyKindSet:
			return nil, false
		}
		key, ts, err := keys.DecodeVersioned(stateKey)
		if err != nil {
			continue // a record beside the data
		}
		h, _, err := DecodeHeader(value)
		if err != nil {
			return nil, false
		}
		writes = append(writes, vacant.Write{Key: key, Timestamp: ts,
			Tombstone: h.Kind == KindTombstone, CommitWait: h.CommitWait})
	}
}
