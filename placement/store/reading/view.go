package reading

import (
	"context"
	"fmt"
	"iter"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// scanPage is the number of pairs that All reads at a time.
const scanPage = 512

// View reads the store as of one revision. It holds no resources and need not be closed; once the
// revision is compacted, reads fail with a CompactedError.
type View struct {
	reads *Reads
	// Revision is the revision of the reads.
	Revision uint64
}

// Read returns a view that includes all that any member acknowledged before the call. Any member
// can serve it, as long as the member reaches a leader that reaches a quorum.
func (x *Reads) Read(ctx context.Context) (*View, error) {
	if err := x.confirmShared(ctx); err != nil {
		return nil, err
	}
	return x.Stale(), nil
}

// Stale returns a view of this member's state, which may lag by any time.
func (x *Reads) Stale() *View { return &View{reads: x, Revision: x.config.State.Revision()} }

// At returns a view of this member's state at a revision.
func (x *Reads) At(revision uint64) *View { return &View{reads: x, Revision: revision} }

// Range answers a range request at the view's revision, or at the request's own if it has one.
func (v *View) Range(q *storepb.Range) (*storepb.RangeResult, error) {
	if len(q.GetKey()) == 0 {
		return nil, fmt.Errorf("%w: a range has no key", command.ErrInvalid)
	}
	revision := q.Revision
	if revision == 0 {
		revision = v.Revision
	}
	var result *storepb.RangeResult
	err := v.reads.database.ReadWhole(func(r *tables.Reader) error {
		at, err := r.CheckRevision(revision)
		if err != nil {
			return err
		}
		r.Blocks = v.reads.config.Blocks
		result, err = r.RangeAt(q, at, tables.NewAllowance(v.reads.config.LargestAnswer))
		return err
	})
	return result, err
}

// ReadTxn is ReadTxnAs for servers. After it returns, its answer does not count as a large answer.
func (x *Reads) ReadTxn(ctx context.Context, t *storepb.Txn) (*storepb.Result, error) {
	result, release, err := x.ReadTxnAs(ctx, nil, t)
	release()
	return result, err
}

// ReadTxnAs evaluates a transaction without writes, also in nested ones, without the log. It reads
// one state of this member, whose revision is in the result. If the caller calls Read first, the
// state has all that any member acknowledged before that call; otherwise the state may lag by any
// time. Permissions are checked by the users and roles of the same state; who is nil for servers.
//
// An answer above LargeAnswerBytes waits, for 5 s at most, until callers hold fewer than
// Memory.LargeAnswers others; then the error is ErrOverloaded. The caller holds its answer until it
// calls release, once, also after an error. ErrTooLarge means that the answer would exceed
// Memory.LargestAnswer; an error of ctx, that ctx ended during the read; the other errors are those
// of Do.
func (x *Reads) ReadTxnAs(
	ctx context.Context, who *storepb.AuthInfo, t *storepb.Txn,
) (result *storepb.Result, release func(), err error) {
	release = func() {}
	sole := tables.SoleRange(t)
	if sole == nil {
		c := &storepb.Command{Op: &storepb.Command_Txn{Txn: t}}
		if err := command.Validate(c); err != nil {
			return nil, release, err
		}
		if !command.ReadOnly(t) {
			return nil, release,
				fmt.Errorf("%w: a transaction that writes cannot be done by reading", command.ErrInvalid)
		}
	}
	result = &storepb.Result{}
	err = x.readShared(ctx, tables.Whole(func(r *tables.Reader) error {
		if err := x.permitRead(r, who, t); err != nil {
			return err
		}
		r.Interrupted, r.Counts, r.Blocks = ctx.Err, &x.counts, x.config.Blocks
		result.Revision = r.Meta.Revision
		var chosen map[*storepb.Txn]bool
		var err error
		if sole != nil {
			r.RefuseRevision(sole, result)
		} else if chosen, err = r.Choose(t, command.NewestFormat, nil); err == nil {
			err = r.Check(t, chosen, result)
		}
		if err != nil || result.Code != storepb.Code_OK {
			return err
		}
		allowed := tables.NewAllowance(x.config.LargestAnswer)
		allowed.Large = func() error {
			err := x.large.take(ctx)
			if err == nil {
				release = x.large.giveBack
			}
			return err
		}
		if sole != nil {
			result.Txn, err = r.SoleAnswer(sole, allowed)
		} else {
			result.Txn, err = r.Txn(t, chosen, allowed)
		}
		return err
	}))
	if err != nil {
		return nil, release, err
	}
	return result, release, command.ErrorOf(result)
}

// Get reads one key; nil if it does not exist.
func (v *View) Get(key []byte) (*storepb.KeyValue, error) {
	result, err := v.Range(&storepb.Range{Key: key})
	if err != nil || len(result.Kvs) == 0 {
		return nil, err
	}
	return result.Kvs[0], nil
}

// All iterates over the keys with a prefix in order, page by page. It ends after an error.
func (v *View) All(prefix []byte) iter.Seq2[*storepb.KeyValue, error] {
	return func(yield func(*storepb.KeyValue, error) bool) {
		key, end := command.PrefixRange(prefix)
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

// AuthorityOf returns the users and roles of a state; nil if authentication is not enabled in it.
// ErrOldRevision means that the state has another revision of users and roles than the published
// one.
func (x *Reads) AuthorityOf(r *tables.Reader) (*authority.State, error) {
	record, err := r.AuthRecord()
	if err != nil || !record.GetEnabled() {
		return nil, err
	}
	state := x.config.State.Authority()
	if !state.Enabled() || state.Revision() != record.Revision {
		return nil, authority.ErrOldRevision
	}
	return state, nil
}

// permitRead refuses a transaction whose client may not make its reads, by the users and roles of
// the reader's state.
func (x *Reads) permitRead(r *tables.Reader, who *storepb.AuthInfo, t *storepb.Txn) error {
	if who == nil {
		return nil
	}
	state, err := x.AuthorityOf(r)
	if err != nil || state == nil {
		return err
	}
	return state.Txn(who, t, func(int64) ([][]byte, error) { return nil, nil })
}
