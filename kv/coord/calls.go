package coord

import (
	"context"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// The pause after a failed attempt grows from retryBase to retryCap by doubling, with a jitter of
	// a half.
	retryBase = 20 * time.Millisecond
	retryCap  = time.Second

	// pageSize is the number of keys in one read.
	pageSize = 1000
)

// pause waits before another attempt; the first is 0. It fails when the context ends.
func pause(ctx context.Context, attempt int) error {
	return sleep(ctx, backoff.Step(attempt, retryBase, retryCap, 0.5, rand.Float64()))
}

// call makes one attempt.
func (c *Client) call(ctx context.Context, f func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	ctx, attempts := direct.NoteAttempts(ctx)
	err := f(ctx)
	if err != nil && attempts.Unsent() {
		return because(text(err), errUnsent, err)
	}
	return err
}

// ended returns the error with which a call ends, or nil if the call should be tried again.
func (c *Client) ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if c.etcd.Ctx().Err() != nil {
		return because("the client is closed", ErrClosed)
	}
	if judge(err) == refused {
		return err
	}
	return nil
}

// until makes attempts until one has a definite outcome, or the context ends. It is for requests
// that may be executed more than once.
func (c *Client) until(ctx context.Context, f func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := c.call(ctx, f)
		if err == nil {
			return nil
		}
		if err := c.ended(ctx, err); err != nil {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

func (c *Client) get(ctx context.Context, key string,
	options ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	err = c.until(ctx, func(ctx context.Context) (err error) {
		r, err = c.etcd.Get(ctx, key, options...)
		return err
	})
	return r, err
}

// read runs operations that only read, at one revision.
func (c *Client) read(ctx context.Context,
	ops ...clientv3.Op) (r *clientv3.TxnResponse, err error) {
	err = c.until(ctx, func(ctx context.Context) (err error) {
		r, err = c.etcd.Txn(ctx).Then(ops...).Commit()
		return err
	})
	return r, err
}

// one returns the only pair in a range answer of a transaction, or nil.
func one(r *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := r.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// list reads all pairs below a prefix at one revision, in the order of keys.
func (c *Client) list(ctx context.Context, prefix string) (all []*mvccpb.KeyValue, revision int64,
	err error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		r, err := c.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize),
			clientv3.WithRev(revision))
		if err != nil {
			if revision != 0 && isCompacted(err) {
				all, revision, from = nil, 0, prefix // the history was compacted during the read: start again
				continue
			}
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		all = append(all, r.Kvs...)
		if !r.More || len(r.Kvs) == 0 {
			return all, revision, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}
