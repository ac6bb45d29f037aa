package tables

import (
	"bytes"
	"cmp"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Choose evaluates the comparisons of each transaction in t.
func (r *Reader) Choose(
	t *storepb.Txn, format byte, chosen map[*storepb.Txn]bool,
) (map[*storepb.Txn]bool, error) {
	if chosen == nil {
		chosen = map[*storepb.Txn]bool{}
	}
	holds := true
	for _, c := range t.Compare {
		ok, err := r.compare(c, format)
		if err != nil {
			return nil, err
		}
		holds = holds && ok
	}
	chosen[t] = holds
	for _, op := range Branch(t, holds) {
		if nested, ok := op.Op.(*storepb.Op_Txn); ok {
			if _, err := r.Choose(nested.Txn, format, chosen); err != nil {
				return nil, err
			}
		}
	}
	return chosen, nil
}

func Branch(t *storepb.Txn, holds bool) []*storepb.Op {
	if holds {
		return t.Success
	}
	return t.Failure
}

// compare evaluates one comparison, with etcd's result. A comparison of a range has to hold for
// every existing key. A range without keys is compared as one key that does not exist: its numbers
// are 0, and no comparison with its value holds.
func (r *Reader) compare(c *storepb.Compare, format byte) (bool, error) {
	if len(c.RangeEnd) == 0 {
		need := WithoutValue
		if c.Target == storepb.Compare_VALUE {
			need = WholePair
		}
		kv, err := r.NewestAt(c.Key, r.Meta.Revision, need)
		if err != nil {
			return false, err
		}
		if kv == nil {
			return holdsForNone(c), nil
		}
		return holds(c, kv), nil
	}
	all, none := true, true
	err := r.Scan(command.Span(c.Key, c.RangeEnd), r.Meta.Revision,
		func(kv *storepb.KeyValue) (bool, error) {
			all, none = holds(c, kv), false
			return all, nil
		})
	if none && format >= command.CompareFormat {
		all = holdsForNone(c)
	}
	return all, err
}

// holdsForNone evaluates a comparison for a key that does not exist.
func holdsForNone(c *storepb.Compare) bool {
	return c.Target != storepb.Compare_VALUE && holds(c, &storepb.KeyValue{})
}

func holds(c *storepb.Compare, kv *storepb.KeyValue) bool {
	var order int
	switch c.Target {
	case storepb.Compare_VERSION:
		order = cmp.Compare(int64(kv.Version), c.Number)
	case storepb.Compare_CREATE:
		order = cmp.Compare(int64(kv.CreateRevision), c.Number)
	case storepb.Compare_MOD:
		order = cmp.Compare(int64(kv.ModRevision), c.Number)
	case storepb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.Number)
	case storepb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.Value)
	default:
		return false
	}
	switch c.Relation {
	case storepb.Compare_EQUAL:
		return order == 0
	case storepb.Compare_GREATER:
		return order > 0
	case storepb.Compare_LESS:
		return order < 0
	case storepb.Compare_NOT_EQUAL:
		return order != 0
	}
	return false
}

// Check finds a reason to refuse the chosen operations.
func (r *Reader) Check(t *storepb.Txn, chosen map[*storepb.Txn]bool, result *storepb.Result) error {
	for _, op := range Branch(t, chosen[t]) {
		switch op := op.Op.(type) {
		case *storepb.Op_Txn:
			if err := r.Check(op.Txn, chosen, result); err != nil {
				return err
			}
		case *storepb.Op_Range:
			r.RefuseRevision(op.Range, result)
		case *storepb.Op_Put:
			p := op.Put
			if p.Lease != 0 {
				_, ok, err := r.Get(r.Lease(p.Lease))
				if err != nil {
					return err
				}
				if !ok {
					command.Refuse(result, storepb.Code_LEASE_NOT_FOUND, "lease %d of key %s", p.Lease,
						keys.Pretty(p.Key))
					return nil
				}
			}
			if p.IgnoreLease || p.IgnoreValue {
				kv, err := r.NewestAt(p.Key, r.Meta.Revision, WithoutValue)
				if err != nil {
					return err
				}
				if kv == nil {
					command.Refuse(result, storepb.Code_KEY_NOT_FOUND, "key %s", keys.Pretty(p.Key))
				}
			}
		}
		if result.Code != storepb.Code_OK {
			return nil
		}
	}
	return nil
}

// RefuseRevision refuses a range at a revision that cannot be read.
func (r *Reader) RefuseRevision(q *storepb.Range, result *storepb.Result) {
	negative := int64(q.Revision) < 0
	switch {
	case q.Revision == 0:
	case negative && (r.Meta.Compacted > 0 || int64(q.Revision) < -1),
		!negative && q.Revision < r.Meta.Compacted:
		command.Refuse(result, storepb.Code_COMPACTED, "")
		result.Compacted = r.Meta.Compacted
	case !negative && q.Revision > r.Meta.Revision:
		command.Refuse(result, storepb.Code_FUTURE_REVISION,
			"revision %d was asked for, the newest is %d", q.Revision, r.Meta.Revision)
	}
}

// SoleRange returns the only operation of a transaction, if it is a range; nil if the transaction
// has more, or is not valid. Most reads are such transactions.
func SoleRange(t *storepb.Txn) *storepb.Range {
	if len(t.GetSuccess()) != 1 || len(t.Compare) > 0 || len(t.Failure) > 0 {
		return nil
	}
	if q := t.Success[0].GetRange(); len(q.GetKey()) > 0 {
		return q
	}
	return nil
}

// SoleAnswer is Txn for a transaction that is one range. The messages of its result share one
// allocation.
func (r *Reader) SoleAnswer(q *storepb.Range, allowed *allowance) (*storepb.TxnResult, error) {
	found, err := r.rangeIn(q, allowed)
	if err != nil {
		return nil, err
	}
	all := &struct {
		txn    storepb.TxnResult
		result storepb.OpResult
		op     storepb.OpResult_Range
		list   [1]*storepb.OpResult
	}{}
	all.op.Range = found
	all.result.Op = &all.op
	all.list[0] = &all.result
	all.txn.Succeeded, all.txn.Results = true, all.list[:]
	return &all.txn, nil
}

// rangeIn answers a range of a transaction. The range's revision was checked before.
func (r *Reader) rangeIn(q *storepb.Range, allowed *allowance) (*storepb.RangeResult, error) {
	revision := q.Revision
	if int64(revision) <= 0 {
		revision = r.Meta.Revision
	}
	return r.RangeAt(q, revision, allowed)
}

// Txn answers the chosen operations of a transaction without writes.
func (r *Reader) Txn(
	t *storepb.Txn, chosen map[*storepb.Txn]bool, allowed *allowance,
) (*storepb.TxnResult, error) {
	result := &storepb.TxnResult{Succeeded: chosen[t]}
	for _, op := range Branch(t, chosen[t]) {
		one := &storepb.OpResult{}
		switch op := op.Op.(type) {
		case *storepb.Op_Range:
			found, err := r.rangeIn(op.Range, allowed)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Range{Range: found}
		case *storepb.Op_Txn:
			nested, err := r.Txn(op.Txn, chosen, allowed)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Txn{Txn: nested}
		}
		result.Results = append(result.Results, one)
	}
	return result, nil
}
