package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Queue delivers items to consumers: items with the lowest priority number first, and items of the
// same priority in the order in which they were put.
//
// The guarantees:
//
//   - An item is delivered until a consumer has confirmed it (Item.Done). The item is on the disks
//     of a majority of the service's members.
//   - At any time at most one consumer holds the item: its claim is a key under the consumer's
//     session. If the consumer fails, the item is delivered again when the session's time to live
//     is over. If the consumer returns the item (Item.Return), it is delivered again at once.
//   - Of several calls of Done for one item exactly one succeeds.
//
// So an item is delivered at least once. A consumer whose session was lost may still work on an
// item that another consumer has received. Item.Held tells the former consumer, and its writes can
// be refused with Item.Token (Fence). Items that are delivered again keep their place at the front.
// So the order is that of the first deliveries only if no consumer fails.
type Queue struct {
	client *Client
	name   string
}

// Queue returns the queue with a name.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// PutOption is an option of Queue.Put: Priority.
type PutOption func(*putConfig)

type putConfig struct{ priority uint32 }

// Priority sets the priority number of an item. Items with lower numbers are taken first. The
// default is 0.
func Priority(p uint32) PutOption { return func(c *putConfig) { c.priority = p } }

func (q *Queue) prefix() string  { return q.client.path("queue", q.name) }
func (q *Queue) counter() string { return q.prefix() + "counter" }
func (q *Queue) items() string   { return q.prefix() + "items/" }
func (q *Queue) claims() string  { return q.prefix() + "claims/" }

// Put adds an item. ErrOutcomeUnknown means that ctx ended before the outcome was known: the item
// may be in the queue, or may be added later.
func (q *Queue) Put(ctx context.Context, value []byte, options ...PutOption) error {
	const op = "put into queue"
	if err := checkName(op, q.name); err != nil {
		return err
	}
	var cfg putConfig
	for _, o := range options {
		o(&cfg)
	}
	_, err := q.client.next(ctx, nil, q.counter(), func(number uint64) string {
		return fmt.Sprintf("%s%08x/%016x", q.items(), cfg.priority, number)
	}, value)
	return fail(op, q.name, err)
}

// Len returns the number of items, including those that consumers hold.
func (q *Queue) Len(ctx context.Context) (int, error) {
	const op = "count"
	if err := checkName(op, q.name); err != nil {
		return 0, err
	}
	r, err := q.client.get(ctx, q.items(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fail(op, q.name, err)
	}
	return int(r.Count), nil
}

// Item is an item that a consumer holds.
type Item struct {
	// Value is the value given to Put.
	Value []byte

	queue *Queue
	key   string
	held  *heldKey
}

// Take waits for an item that is not held, and holds it under the session. When an item comes, all
// waiting consumers try to claim it, and one succeeds.
func (q *Queue) Take(ctx context.Context, s *Session) (*Item, error) {
	const op = "take from queue"
	if err := checkName(op, q.name); err != nil {
		return nil, err
	}
	if err := s.Err(); err != nil {
		return nil, fail(op, q.name, err)
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	for {
		item, revision, err := q.claimFirst(ctx, s)
		if err != nil {
			return nil, fail(op, q.name, err)
		}
		if item != nil {
			return item, nil
		}
		err = q.client.awaitChange(ctx, q.prefix(), revision, func(e *clientv3.Event) bool {
			key := string(e.Kv.Key)
			return e.Type == clientv3.EventTypePut && strings.HasPrefix(key, q.items()) ||
				e.Type == clientv3.EventTypeDelete && strings.HasPrefix(key, q.claims())
		})
		if err != nil {
			return nil, fail(op, q.name, err)
		}
	}
}

// claimFirst claims the first item that is not held. It returns nil if there was none at revision.
func (q *Queue) claimFirst(ctx context.Context, s *Session) (*Item, int64, error) {
	claims, revision, err := q.client.list(ctx, q.claims())
	if err != nil {
		return nil, 0, err
	}
	claimed := make(map[string]bool, len(claims))
	for _, kv := range claims {
		claimed[strings.TrimPrefix(string(kv.Key), q.claims())] = true
	}
	end := clientv3.GetPrefixRangeEnd(q.items())
	for from := q.items(); ; {
		// The claims were read before the items. If an item has a newer claim, this claim fails.
		r, err := q.client.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(16))
		if err != nil {
			return nil, 0, err
		}
		for _, kv := range r.Kvs {
			from = string(kv.Key) + "\x00"
			if claimed[strings.TrimPrefix(string(kv.Key), q.items())] {
				continue
			}
			item, err := q.claim(ctx, s, kv)
			if item != nil || err != nil {
				return item, 0, err
			}
		}
		if !r.More {
			return nil, revision, nil
		}
	}
}

// claim claims an item. It returns nil if another consumer has claimed it, or it is done.
func (q *Queue) claim(ctx context.Context, s *Session, kv *mvccpb.KeyValue) (*Item, error) {
	key := string(kv.Key)
	claim := q.claims() + strings.TrimPrefix(key, q.items())
	made, err := s.create(ctx, claim, s.unique(),
		clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision))
	switch {
	case errors.Is(err, ErrExists):
		return nil, nil // another call of this session holds the item
	case err != nil, made.revision == 0:
		return nil, err
	}
	return &Item{Value: kv.Value, queue: q, key: key, held: s.hold(q.name, claim, made.revision)}, nil
}

// Held returns a context that ends when the consumer no longer holds the item: the item is done or
// returned, or the session has ended.
func (i *Item) Held() context.Context { return i.held.ctx }

// Token is higher than the token of every consumer that held the item before.
func (i *Item) Token() Token { return Token(i.held.created) }

// Return gives the item back to the queue, which delivers it again.
func (i *Item) Return(ctx context.Context) error { return i.held.release(ctx, "return") }

// Done removes the item from the queue. It fails with ErrLost or ErrSessionEnded if the consumer no
// longer holds the item: then the item is or was delivered again. ErrOutcomeUnknown means that ctx
// or the session ended before the outcome was known. While Held has not ended, Done may be called
// again. If the consumer then turns out not to hold the item any more, Held ends with
// ErrOutcomeUnknown.
func (i *Item) Done(ctx context.Context) error {
	const op = "finish an item"
	h := i.held
	if err := h.err(); err != nil {
		return fail(op, h.name, err)
	}
	ctx, cancel := h.session.within(ctx)
	defer cancel()
	h.finishing.Store(true)
	err := i.done(ctx)
	switch {
	case err == nil:
		h.gone(h.released("it is done"))
	case errors.Is(err, ErrLost):
		h.lost()
	default:
		if errors.Is(err, ErrOutcomeUnknown) {
			h.doubtful.Store(true)
		}
		h.finishing.Store(false)
		h.watch(0) // the former watch may have ended
	}
	return fail(op, h.name, err)
}

func (i *Item) done(ctx context.Context) error {
	h, c := i.held, i.held.session.client
	maybe := h.doubtful.Load()
	for attempt := 0; ; attempt++ {
		var r *clientv3.TxnResponse
		err := c.call(ctx, func(ctx context.Context) (err error) {
			r, err = c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.created)).
				Then(clientv3.OpDelete(i.key), clientv3.OpDelete(h.key)).
				Else(clientv3.OpGet(i.key)).Commit()
			return err
		})
		switch {
		case err == nil && r.Succeeded:
			return nil
		case err == nil && maybe && one(r, 0) == nil:
			// Only the holder of the claim removes the item, and this session held the claim while it lived.
			if ended := h.session.Err(); ended != nil {
				return unknownOutcome(i.key, ended)
			}
			return nil
		case err == nil:
			return because("its claim "+h.key+" was deleted; the item is delivered again, or was",
				ErrLost)
		}
		maybe = maybe || judge(err) == unknown
		ended := c.ended(ctx, err)
		if ended == nil {
			ended = pause(ctx, attempt)
		}
		if ended != nil && maybe {
			return unknownOutcome(i.key, ended)
		} else if ended != nil {
			return ended
		}
	}
}
