package coord

import (
	"context"
	"errors"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func isCompacted(err error) bool { return errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) }

// watch passes all events from a revision on to see, until see returns true. It returns whether see
// did. If it returns false and the context has not ended, the watch has ended, and the caller has
// to read the changes since then.
func (c *Client) watch(ctx context.Context, key string, from int64,
	see func(*clientv3.Event) bool, options ...clientv3.OpOption) (seen bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // ends the watch
	for r := range c.etcd.Watch(ctx, key, append(options, clientv3.WithRev(from))...) {
		if r.Err() != nil {
			return false
		}
		for _, event := range r.Events {
			if see(event) {
				return true
			}
		}
	}
	return false
}

// awaitGone returns nil when a key that was created at a revision is gone. The key existed at the
// revision from; if from is 0, awaitGone first checks that it exists.
func (c *Client) awaitGone(ctx context.Context, key string, created, from int64) error {
	for attempt := 0; ; attempt++ {
		if from == 0 {
			r, err := c.get(ctx, key)
			if err != nil {
				return err
			}
			if len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != created {
				return nil
			}
			from = r.Header.Revision
		}
		if c.watch(ctx, key, from+1, func(*clientv3.Event) bool { return true },
			clientv3.WithFilterPut()) {
			return nil
		}
		from = 0
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// gone returns a function that waits as awaitGone does.
func (c *Client) gone(key string, created, from int64) func(context.Context) error {
	return func(ctx context.Context) error { return c.awaitGone(ctx, key, created, from) }
}

// either runs two waits at the same time. When one of them returns, either ends the other one,
// waits for its end, and returns the result of the first.
func either(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- a(ctx) }()
	go func() { ended <- b(ctx) }()
	err := <-ended
	cancel()
	<-ended
	return err
}

// awaitChange returns nil when a relevant change below a prefix has happened after a revision, or
// may have happened.
func (c *Client) awaitChange(ctx context.Context, prefix string, after int64,
	matters func(*clientv3.Event) bool) error {
	if c.watch(ctx, prefix, after+1, matters, clientv3.WithPrefix()) {
		return nil
	}
	return pause(ctx, 3) // a change may have happened; the pause limits the rate of reads
}

// change is a step of the keys below a prefix: their whole state, or the changes of one revision.
type change struct {
	revision int64
	// whole is set if state is the complete state. The changes that led to it are not known.
	whole  bool
	state  []*mvccpb.KeyValue
	events []*clientv3.Event
}

// changes yields the state of the keys below a prefix, and then every change, revision by revision.
// If the service has compacted the history of the next changes, the state is yielded again. The
// iteration ends with the context, or with an error that another attempt would not avoid.
func (c *Client) changes(ctx context.Context, prefix string) iter.Seq2[change, error] {
	return func(yield func(change, error) bool) {
		next := int64(0)
		for attempt := 0; ; attempt++ {
			if next == 0 {
				state, revision, err := c.list(ctx, prefix)
				if err != nil {
					yield(change{}, err)
					return
				}
				if !yield(change{revision: revision, whole: true, state: state}, nil) {
					return
				}
				next = revision + 1
			}
			more, moved := c.follow(ctx, prefix, &next, yield)
			if !more {
				return
			}
			if moved {
				attempt = 0
			}
			err := context.Cause(ctx)
			if err == nil && c.etcd.Ctx().Err() != nil {
				err = because("the client is closed", ErrClosed)
			}
			if err == nil {
				err = pause(ctx, attempt)
			}
			if err != nil {
				yield(change{}, err)
				return
			}
		}
	}
}

// follow yields the changes from *next on, and advances *next, as long as one watch lives. If the
// state has to be read afterwards, *next is 0. It returns false if the caller wants no more
// changes.
func (c *Client) follow(ctx context.Context, prefix string, next *int64,
	yield func(change, error) bool) (more, moved bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range c.etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(*next)) {
		if err := r.Err(); err != nil {
			// If the watch cannot continue, a read shows the reason, or the revision from which to continue.
			if !errors.Is(err, rpctypes.ErrNoLeader) {
				*next = 0
			}
			return true, moved
		}
		for events := r.Events; len(events) > 0; {
			n, revision := 1, events[0].Kv.ModRevision
			for n < len(events) && events[n].Kv.ModRevision == revision {
				n++
			}
			if !yield(change{revision: revision, events: events[:n]}, nil) {
				return false, true
			}
			*next, events, moved = revision+1, events[n:], true
		}
	}
	return true, moved
}
