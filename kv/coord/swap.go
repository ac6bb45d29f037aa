package coord

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxSent limits the number of different values that one swap has sent.
const maxSent = 1000

// swapped is the result of a swap.
type swapped struct {
	// done is set if the key was as expected and was changed to value, at revision.
	done     bool
	value    string
	revision int64
	// current is the present pair if done is false. It is nil if the key is absent.
	current *mvccpb.KeyValue
}

// swap writes a key, together with the other operations, if the key was last modified at a
// revision. Revision 0 means that the key must be absent. No other write may have the same value,
// and the key must never be deleted. Under these conditions the history shows which of several
// writes came first, and no attempt can take effect late, because the revision of the key has
// changed. ErrOutcomeUnknown is possible if the context ends, or if the necessary history was
// compacted.
func (c *Client) swap(ctx context.Context, key string, modified int64, value string,
	also ...clientv3.Op) (swapped, error) {
	return c.swapOne(ctx, key, modified, func() string { return value }, also...)
}

// swapOne is swap with a value that may differ in each attempt. At most one of the values is
// written.
func (c *Client) swapOne(ctx context.Context, key string, modified int64, next func() string,
	also ...clientv3.Op) (swapped, error) {
	sent := make(map[string]bool)
	for attempt := 0; ; attempt++ {
		value := next()
		var r *clientv3.TxnResponse
		err := c.call(ctx, func(ctx context.Context) (err error) {
			r, err = c.etcd.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(key), "=", modified)).
				Then(append([]clientv3.Op{clientv3.OpPut(key, value)}, also...)...).
				Else(clientv3.OpGet(key)).Commit()
			return err
		})
		switch {
		case err == nil && r.Succeeded:
			return swapped{done: true, value: value, revision: r.Header.Revision}, nil
		case err == nil && len(sent) == 0:
			return swapped{current: one(r, 0)}, nil
		case err == nil:
			return c.settle(ctx, key, modified, sent, one(r, 0))
		}
		if judge(err) == unknown {
			sent[value] = true
		}
		ended := c.ended(ctx, err)
		if ended == nil && len(sent) > maxSent {
			ended = err
		}
		if ended == nil {
			ended = pause(ctx, attempt)
		}
		if ended != nil && len(sent) > 0 {
			return swapped{}, unknownOutcome(key, ended)
		} else if ended != nil {
			return swapped{}, ended
		}
	}
}

func unknownOutcome(key string, err error) error {
	return because(fmt.Sprintf("%s; the write of %s may have been executed, or may yet be",
		text(err), key), ErrOutcomeUnknown, err)
}

// settle determines whether the first write after a revision was one of the sent writes.
func (c *Client) settle(ctx context.Context, key string, modified int64, sent map[string]bool,
	current *mvccpb.KeyValue) (swapped, error) {
	ours := func(kv *mvccpb.KeyValue) swapped {
		return swapped{done: true, value: string(kv.Value), revision: kv.ModRevision}
	}
	switch {
	case current == nil:
		return swapped{}, unknownOutcome(key, because("the key was deleted meanwhile"))
	case sent[string(current.Value)]:
		return ours(current), nil
	}
	from := modified + 1
	if modified == 0 {
		from = current.CreateRevision
	}
	first, err := c.firstChange(ctx, key, from)
	switch {
	case err != nil:
		return swapped{}, unknownOutcome(key, err)
	case sent[string(first.Kv.Value)]:
		return ours(first.Kv), nil
	}
	return swapped{current: current}, nil
}

// firstChange returns the first change of a key at or after a revision. The caller knows that there
// is one.
func (c *Client) firstChange(ctx context.Context, key string, from int64) (first *clientv3.Event,
	err error) {
	for attempt := 0; ; attempt++ {
		if c.watch(ctx, key, from, func(e *clientv3.Event) bool { first = e; return true }) {
			return first, nil
		}
		// A read at that revision shows whether the revision was compacted.
		if _, err := c.get(ctx, key, clientv3.WithRev(from)); err != nil {
			return nil, err
		}
		if err := pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}
