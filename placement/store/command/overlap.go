package command

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// writeSet are the keys that a list of operations may write, with nested transactions, on either
// branch.
type writeSet struct {
	puts    [][]byte
	deletes []keys.Span
}

// checkOverlap refuses a list of operations that may put a key twice, or put and delete it: at one
// revision a key has one version. Two deletions may overlap, and so may the two branches of one
// transaction.
func checkOverlap(ops []*storepb.Op) error {
	_, err := writesOf(ops)
	return err
}

// ownedKey is a key with the number of the operation that puts it; ownedSpan is a span with the
// number of the operation that deletes it.
type ownedKey struct {
	key   []byte
	owner int
}

type ownedSpan struct {
	keys.Span
	owner int
}

func writesOf(ops []*storepb.Op) (writeSet, error) {
	var puts []ownedKey
	var deletes []ownedSpan
	for i, op := range ops {
		switch op := op.GetOp().(type) {
		case *storepb.Op_Put:
			puts = append(puts, ownedKey{op.Put.GetKey(), i})
		case *storepb.Op_DeleteRange:
			if span := Span(op.DeleteRange.GetKey(), op.DeleteRange.GetRangeEnd()); !span.Empty() {
				deletes = append(deletes, ownedSpan{span, i})
			}
		case *storepb.Op_Txn:
			for _, nested := range [][]*storepb.Op{op.Txn.GetSuccess(), op.Txn.GetFailure()} {
				writes, err := writesOf(nested)
				if err != nil {
					return writeSet{}, err
				}
				for _, key := range writes.puts {
					puts = append(puts, ownedKey{key, i})
				}
				for _, span := range writes.deletes {
					deletes = append(deletes, ownedSpan{span, i})
				}
			}
		}
	}
	return overlapOf(puts, deletes)
}

// overlapOf finds a key that one operation puts and another puts or deletes. It goes through both
// in the order of the keys, so its time is never quadratic.
func overlapOf(puts []ownedKey, deletes []ownedSpan) (writeSet, error) {
	slices.SortStableFunc(puts, func(a, b ownedKey) int { return bytes.Compare(a.key, b.key) })
	slices.SortStableFunc(deletes, func(a, b ownedSpan) int {
		return bytes.Compare(a.Start, b.Start)
	})
	var all writeSet
	// Among the spans that have begun, first ends last; second ends last among the spans of other
	// owners than first's.
	var first, second *ownedSpan
	next := 0
	for i := range puts {
		p := &puts[i]
		for ; next < len(deletes) && bytes.Compare(deletes[next].Start, p.key) <= 0; next++ {
			switch d := &deletes[next]; {
			case first == nil || endsAfter(d, first):
				if first != nil && first.owner != d.owner {
					second = first
				}
				first = d
			case d.owner != first.owner && (second == nil || endsAfter(d, second)):
				second = d
			}
		}
		twice := i > 0 && bytes.Equal(puts[i-1].key, p.key)
		switch {
		case twice && puts[i-1].owner != p.owner,
			first != nil && first.owner != p.owner && first.Contains(p.key),
			second != nil && second.owner != p.owner && second.Contains(p.key):
			return all, fmt.Errorf("%w: %s", ErrDuplicateKey, keys.Pretty(p.key))
		case !twice:
			all.puts = append(all.puts, p.key)
		}
	}
	for _, d := range deletes {
		all.deletes = append(all.deletes, d.Span)
	}
	return all, nil
}

func endsAfter(a, b *ownedSpan) bool {
	switch {
	case len(b.End) == 0:
		return false
	case len(a.End) == 0:
		return true
	}
	return bytes.Compare(a.End, b.End) > 0
}
