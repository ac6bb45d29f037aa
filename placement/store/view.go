package store

import (
	"context"
	"fmt"
	"iter"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// scanPage is how many pairs All reads at a time.
const scanPage = 512

// View reads the store as it was at one revision. It holds nothing and need not be closed; once the
// revision is compacted, reading fails with a CompactedError.
type View struct {
	store *Store
	// Revision is what is read.
	Revision uint64
}

// Read returns a view that contains everything that was acknowledged anywhere before the call. Any
// member can give it, as long as it reaches a leader that reaches a quorum.
func (s *Store) Read(ctx context.Context) (*View, error) {
	if err := s.confirmShared(ctx); err != nil {
		return nil, err
	}
	return s.Stale(), nil
}

// Stale returns a view of what this member has, which may lag behind by any time.
func (s *Store) Stale() *View { return &View{store: s, Revision: s.Revision()} }

// At returns a view of this member's state at a revision.
func (s *Store) At(revision uint64) *View { return &View{store: s, Revision: revision} }

// Range answers a range request at the view's revision, or at the request's own if it has one.
func (v *View) Range(q *storepb.Range) (*storepb.RangeResult, error) {
	if len(q.GetKey()) == 0 {
		return nil, fmt.Errorf("%w: a range has no key", ErrInvalid)
	}
	revision := q.Revision
	if revision == 0 {
		revision = v.Revision
	}
	var result *storepb.RangeResult
	err := v.store.readWhole(func(r *reader) error {
		at, err := r.checkRevision(revision)
		if err != nil {
			return err
		}
		r.blocks = v.store.blocks
		result, err = r.rangeAt(q, at, newAllowance(v.store.config.Memory.LargestAnswer))
		return err
	})
	return result, err
}

// ReadTxn is ReadTxnAs for the servers themselves, whose answers do not count among the large ones
// once it has returned.
func (s *Store) ReadTxn(ctx context.Context, t *storepb.Txn) (*storepb.Result, error) {
	result, release, err := s.ReadTxnAs(ctx, nil, t)
	release()
	return result, err
}

// ReadTxnAs does a transaction that writes nothing, and nor do those nested in it, without the log
// and on one state of this member, whose revision is that of the result. If Read returned before,
// that state has everything that was acknowledged anywhere before Read was called; otherwise it may
// lag behind by any time. What the client may not read is refused, by the users and roles of the
// same state; who is nil for the servers themselves.
//
// An answer of more than LargeAnswerBytes waits, for 5 s at most, until fewer than
// Memory.LargeAnswers others are held; ErrOverloaded says that it has waited in vain. It is held
// until release is called, which the caller does once, when it needs the answer no more, and also
// after an error. ErrTooLarge says that the answer would have more than Memory.LargestAnswer, an
// error of ctx that it ended while the state was read; the other errors are those of Do.
func (s *Store) ReadTxnAs(
	ctx context.Context, who *storepb.AuthInfo, t *storepb.Txn,
) (result *storepb.Result, release func(), err error) {
	release = func() {}
	sole := soleRange(t)
	if sole == nil {
		command := &storepb.Command{Op: &storepb.Command_Txn{Txn: t}}
		if err := validateCommand(command); err != nil {
			return nil, release, err
		}
		if !ReadOnly(t) {
			return nil, release,
				fmt.Errorf("%w: a transaction that writes cannot be done by reading", ErrInvalid)
		}
	}
	result = &storepb.Result{}
	err = s.readShared(ctx, whole(func(r *reader) error {
		if err := s.permitRead(r, who, t); err != nil {
			return err
		}
		r.interrupted, r.counts, r.blocks = ctx.Err, &s.counts, s.blocks
		result.Revision = r.meta.Revision
		var chosen map[*storepb.Txn]bool
		var err error
		if sole != nil {
			refuseRevision(r.meta, sole, result)
		} else if chosen, err = choose(r, t, newestFormat, nil); err == nil {
			err = check(r, t, chosen, result)
		}
		if err != nil || result.Code != storepb.Code_OK {
			return err
		}
		allowed := newAllowance(s.config.Memory.LargestAnswer)
		allowed.large = func() error {
			err := s.large.take(ctx)
			if err == nil {
				release = s.large.giveBack
			}
			return err
		}
		if sole != nil {
			result.Txn, err = r.soleAnswer(sole, allowed)
		} else {
			result.Txn, err = r.txn(t, chosen, allowed)
		}
		return err
	}))
	if err != nil {
		return nil, release, err
	}
	return result, release, resultError(result)
}

// soleRange is the range of a transaction that is nothing else; nil if it is anything more, or not
// valid. Most reads are one.
func soleRange(t *storepb.Txn) *storepb.Range {
	if len(t.GetSuccess()) != 1 || len(t.Compare) > 0 || len(t.Failure) > 0 {
		return nil
	}
	if q := t.Success[0].GetRange(); len(q.GetKey()) > 0 {
		return q
	}
	return nil
}

// soleAnswer is txn for a transaction that is one range. The messages of its result are one piece
// of memory.
func (r *reader) soleAnswer(q *storepb.Range, allowed *allowance) (*storepb.TxnResult, error) {
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

// rangeIn answers a range of a transaction, whose revision was checked.
func (r *reader) rangeIn(q *storepb.Range, allowed *allowance) (*storepb.RangeResult, error) {
	revision := q.Revision
	if int64(revision) <= 0 {
		revision = r.meta.Revision
	}
	return r.rangeAt(q, revision, allowed)
}

// txn answers the chosen operations of a transaction that writes nothing.
func (r *reader) txn(
	t *storepb.Txn, chosen map[*storepb.Txn]bool, allowed *allowance,
) (*storepb.TxnResult, error) {
	result := &storepb.TxnResult{Succeeded: chosen[t]}
	for _, op := range branch(t, chosen[t]) {
		one := &storepb.OpResult{}
		switch op := op.Op.(type) {
		case *storepb.Op_Range:
			found, err := r.rangeIn(op.Range, allowed)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Range{Range: found}
		case *storepb.Op_Txn:
			nested, err := r.txn(op.Txn, chosen, allowed)
			if err != nil {
				return nil, err
			}
			one.Op = &storepb.OpResult_Txn{Txn: nested}
		}
		result.Results = append(result.Results, one)
	}
	return result, nil
}

// Get reads one key; nil if it does not exist.
func (v *View) Get(key []byte) (*storepb.KeyValue, error) {
	result, err := v.Range(&storepb.Range{Key: key})
	if err != nil || len(result.Kvs) == 0 {
		return nil, err
	}
	return result.Kvs[0], nil
}

// All goes through the keys with a prefix in order, page by page. After an error it ends.
func (v *View) All(prefix []byte) iter.Seq2[*storepb.KeyValue, error] {
	return func(yield func(*storepb.KeyValue, error) bool) {
		key, end := PrefixRange(prefix)
		for {
			page, err := v.Range(&storepb.Range{Key: key, RangeEnd: end, Limit: scanPage})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(kv, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			key = append(page.Kvs[len(page.Kvs)-1].Key, 0)
		}
	}
}

// read runs f on the newest state of the database.
func (s *Store) read(f func(*reader) error) error {
	r, err := s.open(s.config.State)
	if err != nil {
		return err
	}
	defer s.done(r)
	return f(r)
}
