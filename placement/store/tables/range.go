package tables

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// MaxAnswerBytes is the default of Memory.LargestAnswer: the bound of the keys and values in one
// answer of a read without the log, in bytes.
const MaxAnswerBytes = 64 << 20

// LargeAnswerBytes is the number of bytes of keys and values from which on an answer is large.
const LargeAnswerBytes = 4 << 20

// pairOverhead estimates the memory of a pair beside its key and value, in bytes.
const pairOverhead = 96

// trimAbove is the number of superfluous pairs from which on an ordered range drops them.
const trimAbove = 1024

// allowance is the number of bytes that the ranges of one read may still return.
type allowance struct {
	bytes, of int
	// Large, if set, is called once, when the answer becomes large. An error of Large ends the
	// read.
	Large func() error
}

// Unbounded is for commands, whose size was checked when they were proposed.
var Unbounded *allowance

func NewAllowance(bytes int) *allowance { return &allowance{bytes: bytes, of: bytes} }

func (a *allowance) take(kv *storepb.KeyValue) error {
	if a == nil {
		return nil
	}
	if a.bytes -= pairBytes(kv); a.bytes < 0 {
		return fmt.Errorf("%w: the answer would have more than %d bytes; ask for less at a time",
			command.ErrTooLarge, a.of)
	}
	if a.Large != nil && a.of-a.bytes > LargeAnswerBytes {
		large := a.Large
		a.Large = nil
		return large()
	}
	return nil
}

// giveBack returns the bytes of dropped pairs to the allowance.
func (a *allowance) giveBack(dropped []*storepb.KeyValue) {
	if a == nil {
		return
	}
	for _, kv := range dropped {
		a.bytes += pairBytes(kv)
	}
}

func pairBytes(kv *storepb.KeyValue) int { return len(kv.Key) + len(kv.Value) + pairOverhead }

// selection collects the pairs of a range's answer.
type selection struct {
	q *storepb.Range
	// Limit bounds the pairs of the answer. Keep bounds the pairs that are collected before they
	// are ordered: all pairs, unless the order is that of the keys.
	Limit, Keep uint64
	allowed     *allowance
	pairs       []*storepb.KeyValue
	more        bool
}

func NewSelection(q *storepb.Range, allowed *allowance) *selection {
	s := &selection{q: q, Limit: q.Limit, allowed: allowed}
	if s.Limit == 0 || s.Limit > math.MaxInt64 {
		s.Limit = math.MaxInt64
	}
	switch s.Keep = s.Limit; {
	case q.SortTarget != storepb.Range_KEY && q.SortOrder == storepb.Range_NONE && !s.filters():
		s.Keep = s.Limit + 1 // as etcd: the lowest of the first Limit + 1 pairs
	case s.order() != nil:
		s.Keep = math.MaxUint64
	}
	return s
}

// filters reports whether pairs are left out because of their revisions.
func (s *selection) filters() bool {
	return s.q.MinModRevision != 0 || s.q.MaxModRevision != 0 || s.q.MinCreateRevision != 0 ||
		s.q.MaxCreateRevision != 0
}

func (s *selection) Wants(kv *storepb.KeyValue) bool {
	within := func(revision uint64, least, most int64) bool {
		return (least == 0 || int64(revision) >= least) && (most == 0 || int64(revision) <= most)
	}
	return within(kv.ModRevision, s.q.MinModRevision, s.q.MaxModRevision) &&
		within(kv.CreateRevision, s.q.MinCreateRevision, s.q.MaxCreateRevision)
}

// need returns the part that is needed of the next pair.
func (s *selection) need() Part {
	switch {
	case s.q.CountOnly || s.full() && s.more:
		return MereKey
	case s.full() || s.q.KeysOnly && s.q.SortTarget != storepb.Range_VALUE:
		return WithoutValue
	}
	return WholePair
}

// full reports whether the answer is complete, so that no later pair can be in it.
func (s *selection) full() bool { return uint64(len(s.pairs)) >= s.Keep }

// add adds a pair of the range. Pairs come in the order of the keys.
func (s *selection) add(kv *storepb.KeyValue) error {
	if s.q.CountOnly || s.full() && s.more || !s.Wants(kv) {
		return nil
	}
	if s.full() {
		s.more = true
		return nil
	}
	if err := s.allowed.take(kv); err != nil {
		return err
	}
	s.pairs = append(s.pairs, kv)
	if s.Limit < math.MaxInt32 && uint64(len(s.pairs)) >= 2*s.Limit+trimAbove {
		s.cut()
	}
	return nil
}

// cut orders the collected pairs, and drops the pairs above the limit.
func (s *selection) cut() {
	if compare := s.order(); compare != nil {
		slices.SortStableFunc(s.pairs, compare)
	}
	if uint64(len(s.pairs)) > s.Limit {
		s.more = true
		s.allowed.giveBack(s.pairs[s.Limit:])
		clear(s.pairs[s.Limit:])
		s.pairs = s.pairs[:s.Limit]
	}
}

// order returns the comparison for the answer's order; nil for the order of the keys.
func (s *selection) order() func(a, b *storepb.KeyValue) int {
	var compare func(a, b *storepb.KeyValue) int
	switch s.q.SortTarget {
	case storepb.Range_VERSION:
		compare = func(a, b *storepb.KeyValue) int { return cmp.Compare(a.Version, b.Version) }
	case storepb.Range_CREATE:
		compare = func(a, b *storepb.KeyValue) int {
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		}
	case storepb.Range_MOD:
		compare = func(a, b *storepb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) }
	case storepb.Range_VALUE:
		compare = func(a, b *storepb.KeyValue) int { return bytes.Compare(a.Value, b.Value) }
	default:
		if s.q.SortOrder != storepb.Range_DESCEND {
			return nil
		}
		compare = func(a, b *storepb.KeyValue) int { return bytes.Compare(a.Key, b.Key) }
	}
	if s.q.SortOrder != storepb.Range_DESCEND {
		return compare
	}
	return func(a, b *storepb.KeyValue) int { return compare(b, a) }
}

// finish returns the answer's pairs.
func (s *selection) finish() []*storepb.KeyValue {
	s.cut()
	if s.q.KeysOnly {
		for _, kv := range s.pairs {
			kv.Value = nil
		}
	}
	return s.pairs
}

// RangeAt answers a range request at a revision that was checked.
func (r *Reader) RangeAt(
	q *storepb.Range, revision uint64, allowed *allowance,
) (*storepb.RangeResult, error) {
	if len(q.RangeEnd) == 0 {
		return r.keyAt(q, revision, allowed)
	}
	result := &storepb.RangeResult{}
	s := NewSelection(q, allowed)
	switch {
	case q.CountOnly:
		var err error
		result.Count, err = r.countKeys(command.Span(q.Key, q.RangeEnd), revision)
		return result, err
	case r.knowsCounts(q, revision):
		var err error
		if result.Count, err = r.rangeCounted(q, revision, s); err != nil {
			return nil, err
		}
	default:
		err := r.Walk(command.Span(q.Key, q.RangeEnd), revision, s.need,
			func(kv *storepb.KeyValue) (bool, error) {
				if err := s.add(kv); err != nil || s.more && s.full() && !q.Count {
					return false, err
				}
				result.Count++
				return true, nil
			})
		if err != nil {
			return nil, err
		}
	}
	result.Kvs = s.finish()
	result.More = s.more
	return result, nil
}

// keyAt is RangeAt for one key, which needs no order and no limit.
func (r *Reader) keyAt(
	q *storepb.Range, revision uint64, allowed *allowance,
) (*storepb.RangeResult, error) {
	kv, err := r.At(q.Key, revision)
	if err != nil || kv == nil {
		return &storepb.RangeResult{}, err
	}
	result := &storepb.RangeResult{Count: 1}
	s := selection{q: q}
	if q.CountOnly || !s.Wants(kv) {
		return result, nil
	}
	if err := allowed.take(kv); err != nil {
		return nil, err
	}
	if q.KeysOnly {
		kv.Value = nil
	}
	result.Kvs = []*storepb.KeyValue{kv}
	return result, nil
}
