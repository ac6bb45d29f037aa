package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Resolve ends the locks of decided transactions.
var Resolve = register((*kvpb.Request_Resolve)(nil), Command{
	Name:          "resolve",
	Dispatch:      InQueue,
	Transactional: true,
	EndsLocks:     true,
	Body:          func(q *kvpb.Request) bool { return q.GetResolve() != nil },
	Permissions:   resolveNeeds,
	Named: func(q *kvpb.Request) (latest int64) {
		for _, x := range q.GetResolve().GetResolutions() {
			latest = max(latest, wall(x.GetStatus().GetTimestamp()))
		}
		return latest
	},
	CheckWrite: checkResolve,
	Evaluate:   resolve,
})

func resolve(e *Evaluation, q *kvpb.Request) error {
	c := q.GetResolve()
	for _, x := range c.GetResolutions() {
		if e.refusedTimes(q, wire.FromTimestamp(x.GetStatus().GetTimestamp()), hlc.Timestamp{}) {
			return nil
		}
	}
	e.Within = c.GetWithin()
	e.End(c.GetResolutions(), c.GetBackground(),
		func(r *Result, q *kvpb.Request, _ hlc.Timestamp) *kvpb.Response {
			return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Resolve{
				Resolve: &kvpb.ResolveResponse{Resolved: r.Ended, More: r.MoreWithin}}}
		})
	return nil
}

func checkResolve(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *request.Problem) {
	if s := q.GetResolve().GetWithin(); s != nil {
		if !q.GetResolve().GetBackground() {
			return w, request.Invalid("a resolve within a span has to be one in the background")
		}
		if p := request.CheckSpan(d, s.GetStart(), s.GetEnd()); p != nil {
			return w, p
		}
	}
	resolutions := q.GetResolve().GetResolutions()
	if n := len(resolutions); n > request.MaxResolutions {
		return w, request.Invalid("a resolve names at most %d transactions, this one has %d",
			request.MaxResolutions, n)
	}
	for _, x := range resolutions {
		id, err := txn.ParseID(x.GetTransaction())
		if err != nil {
			return w, request.Invalid("resolve: %v", err)
		}
		ts := wire.FromTimestamp(x.GetStatus().GetTimestamp())
		switch x.GetStatus().GetState() {
		case kvpb.TransactionState_ABORTED:
		case kvpb.TransactionState_COMMITTED:
			if ts.IsZero() {
				return w,
					request.Invalid("resolve: transaction %s is committed and has no timestamp", id)
			}
		default:
			return w, request.Invalid("resolve: transaction %s is not decided", id)
		}
	}
	w.Transaction = &Transaction{}
	return w, nil
}

// CommittedVersion returns the version that a stored lock becomes at its transaction's commit
// timestamp, and the request that wrote it. of and prepared come from the lock table. Unless there
// is an error, the caller closes closer; the value is valid until then.
func (e *Evaluation) CommittedVersion(key []byte, of txn.ID, prepared, commit hlc.Timestamp) (
	op WriteOp, request mvcc.RequestID, closer io.Closer, err error) {
	stored, closer, err := e.State.Get(txn.LockKey(e.InternalKey(key)))
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = fmt.Errorf("%w: it is not there", storage.ErrRecord)
		}
		return op, request, nil, fmt.Errorf("the lock of %s: %w", keys.Pretty(key), err)
	}
	full, err := txn.DecodeLock(stored)
	if err == nil && (full.Transaction.ID != of || full.Prepared != prepared) {
		err = fmt.Errorf("it is of transaction %s", full.Transaction.ID)
	}
	if err != nil {
		closer.Close()
		return op, request, nil, fmt.Errorf("%w: the lock of %s: %w", storage.ErrRecord,
			keys.Pretty(key), err)
	}
	p, err := e.Prior(key)
	if err == nil && commit.LessEq(p.Timestamp) {
		err = fmt.Errorf("%w: the lock of %s, prepared at %s, is to be committed at %s, below the "+
			"version at %s", storage.ErrRecord, keys.Pretty(key), full.Prepared, commit, p.Timestamp)
	}
	if err != nil {
		closer.Close()
		return op, request, nil, err
	}
	return WriteOp{Key: key, Value: full.Value, Tombstone: full.Kind == kvpb.Mutation_DELETE,
		Expires: full.Lifetime.ExpiryOf(commit), WasLive: p.HasValue()}, full.Request, closer, nil
}

// resolveNeeds are Write for all keys that may have the locks. Knowing a transaction's id gives no
// right to end its locks, because clients that wait for a transaction are told its id.
func resolveNeeds(at request.Place, q *kvpb.Request,
	needs []access.Permission) []access.Permission {
	if s := q.GetResolve().GetWithin(); s != nil {
		return request.NeedSpan(needs, at.Keyspace, access.Write, s.GetStart(), s.GetEnd())
	}
	return request.NeedAll(needs, at.Keyspace, access.Write)
}
