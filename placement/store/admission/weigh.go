package admission

import (
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// A command is applied as a whole, by every member, and again whenever a member replays its log; no
// other command is applied meanwhile. So its work is bounded when it is proposed: the leader
// computes the work on its present state. Apply itself refuses nothing for its size, because a
// member of another version would not refuse the same.
const (
	// DefaultMaxTouched is the default of New.
	DefaultMaxTouched = 10_000
	// MaxResultBytes bounds the keys and values that the operations of one command return.
	MaxResultBytes = 16 << 20
)

// CheckWork refuses a transaction that would touch or return too much.
func (g *Gate) CheckWork(t *storepb.Txn) error {
	if err := g.checkLeases(t); err != nil {
		return err
	}
	if !reads(t) {
		return nil
	}
	return g.store.ReadState(func(r *tables.Reader) error {
		w := work{reader: r, most: g.maxTouched}
		_, err := w.txn(t, amount{})
		return err
	})
}

// reads reports whether the work of a transaction depends on the state.
func reads(t *storepb.Txn) bool {
	return comparesRange(t) || !command.EachOp(t, func(op *storepb.Op) bool {
		switch op := op.GetOp().(type) {
		case *storepb.Op_Range:
			return false
		case *storepb.Op_Put:
			return !op.Put.GetPrevious()
		case *storepb.Op_DeleteRange:
			return !op.DeleteRange.GetPrevious() && len(op.DeleteRange.GetRangeEnd()) == 0
		case *storepb.Op_Txn:
			return !comparesRange(op.Txn)
		}
		return true
	})
}

func comparesRange(t *storepb.Txn) bool {
	return slices.ContainsFunc(t.GetCompare(),
		func(c *storepb.Compare) bool { return len(c.GetRangeEnd()) > 0 })
}

// amount is the number of keys that a part of a command touches, and the bytes that it returns.
type amount struct{ keys, bytes int }

// work adds up amounts, and stops at the first sum above the limits.
type work struct {
	reader *tables.Reader
	// most is New's maxTouched.
	most int
	// written are puts that earlier operations may make. Ranges without a revision include them.
	written []*storepb.Put
}

func (w *work) check(a amount) error {
	switch {
	case a.keys > w.most:
		return fmt.Errorf("%w: its ranges have more than %d keys together; do it in parts",
			command.ErrTooLarge, w.most)
	case a.bytes > MaxResultBytes:
		return fmt.Errorf("%w: it would answer with more than %d bytes; ask for less at a time",
			command.ErrTooLarge, MaxResultBytes)
	}
	return nil
}

// txn adds a transaction: its comparisons, and the more expensive of its branches.
func (w *work) txn(t *storepb.Txn, before amount) (amount, error) {
	var err error
	for _, c := range t.GetCompare() {
		if len(c.RangeEnd) > 0 {
			if before, err = w.span(before,
				&storepb.Range{Key: c.Key, RangeEnd: c.RangeEnd, CountOnly: true}); err != nil {
				return before, err
			}
		}
	}
	most, earlier := before, w.written
	var either []*storepb.Put
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		sum := before
		w.written = slices.Clip(earlier)
		for _, op := range ops {
			if sum, err = w.op(sum, op); err != nil {
				return sum, err
			}
		}
		either = append(either, w.written[len(earlier):]...)
		most = amount{max(most.keys, sum.keys), max(most.bytes, sum.bytes)}
	}
	w.written = slices.Concat(earlier, either)
	return most, nil
}

func (w *work) op(a amount, op *storepb.Op) (amount, error) {
	switch op := op.GetOp().(type) {
	case *storepb.Op_Range:
		a, err := w.span(a, op.Range)
		if err != nil || op.Range.Revision != 0 {
			return a, err
		}
		return w.own(a, op.Range)
	case *storepb.Op_Put:
		w.written = append(w.written, op.Put)
		if op.Put.Previous {
			return w.span(a, &storepb.Range{Key: op.Put.Key})
		}
	case *storepb.Op_DeleteRange:
		d := op.DeleteRange
		return w.span(a, &storepb.Range{Key: d.Key, RangeEnd: d.RangeEnd, CountOnly: !d.Previous})
	case *storepb.Op_Txn:
		return w.txn(op.Txn, a)
	}
	return a, nil
}

// span adds the work of a range. In an ordered range the limit may leave the largest pairs.
func (w *work) span(a amount, q *storepb.Range) (amount, error) {
	refused := &storepb.Result{}
	if w.reader.RefuseRevision(q, refused); refused.Code != storepb.Code_OK {
		return a, nil // Apply refuses it with the reason
	}
	revision := q.Revision
	if int64(revision) <= 0 {
		revision = w.reader.Meta.Revision
	}
	s := tables.NewSelection(q, tables.Unbounded)
	before, largest, answered := a.bytes, 0, uint64(0)
	need := func() tables.Part { return tables.WholePair }
	if q.CountOnly {
		need = func() tables.Part { return tables.MereKey }
	}
	err := w.reader.Walk(command.Span(q.Key, q.RangeEnd), revision, need,
		func(kv *storepb.KeyValue) (bool, error) {
			if !q.CountOnly && s.Wants(kv) {
				if answered >= s.Keep && !q.Count {
					return false, nil
				}
				size := len(kv.Key)
				if !q.KeysOnly {
					size += len(kv.Value)
				}
				if answered < s.Keep {
					answered++
					largest = max(largest, size)
					a.bytes = min(a.bytes+size, before+largest*int(min(s.Limit, uint64(w.most))))
				}
			}
			a.keys++
			return true, w.check(a)
		})
	return a, err
}

// own adds the transaction's own puts that a range includes. A key that existed before counts
// twice.
func (w *work) own(a amount, q *storepb.Range) (amount, error) {
	span, found := command.Span(q.Key, q.RangeEnd), uint64(0)
	for _, p := range w.written {
		if !span.Contains(p.Key) {
			continue
		}
		if found++; q.Limit > 0 && found > q.Limit {
			break
		}
		a.keys++
		if !q.CountOnly {
			a.bytes += len(p.Key)
			if !q.KeysOnly {
				a.bytes += len(p.Value)
			}
		}
	}
	return a, w.check(a)
}

// checkLeases refuses a transaction after which a lease might have too many keys.
func (g *Gate) checkLeases(t *storepb.Txn) error {
	for lease, keys := range leasedKeys(t) {
		if g.lessor.Keys(lease)+len(keys) <= g.maxTouched {
			continue
		}
		// Some of the keys may be attached to the lease already.
		if err := g.store.ReadState(func(r *tables.Reader) error {
			for key := range keys {
				kv, err := r.At([]byte(key), r.Meta.Revision)
				if err != nil {
					return err
				}
				if kv.GetLease() == lease {
					delete(keys, key)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if n := g.lessor.Keys(lease); n+len(keys) > g.maxTouched {
			return fmt.Errorf("%w: lease %d has %d keys and would get %d more, the limit is %d; "+
				"use several leases",
				command.ErrTooLarge, lease, n, len(keys), g.maxTouched)
		}
	}
	return nil
}

// leasedKeys are the keys that a transaction may put under leases, by lease; nil if there are none.
func leasedKeys(t *storepb.Txn) map[int64]map[string]bool {
	var all map[int64]map[string]bool
	command.EachOp(t, func(op *storepb.Op) bool {
		if id := op.GetPut().GetLease(); id != 0 {
			if all == nil {
				all = map[int64]map[string]bool{}
			}
			if all[id] == nil {
				all[id] = map[string]bool{}
			}
			all[id][string(op.GetPut().Key)] = true
		}
		return true
	})
	return all
}
