package coord

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Barrier blocks its waiters until it is released. It belongs to no session: the program that
// raised the barrier may have ended long before a client releases it.
type Barrier struct {
	client *Client
	name   string
}

// Barrier returns the barrier with a name.
func (c *Client) Barrier(name string) *Barrier { return &Barrier{client: c, name: name} }

// key returns the key of the barrier. The key stays after the first use of the barrier: its value
// is the state, held or released.
func (b *Barrier) key() string { return b.client.path("barrier", b.name) + "state" }

const (
	barrierHeld     = "held "
	barrierReleased = "released "
)

func isHeld(kv *mvccpb.KeyValue) bool {
	return kv != nil && strings.HasPrefix(string(kv.Value), barrierHeld)
}

// Hold raises the barrier. It returns no error if the barrier is raised already.
func (b *Barrier) Hold(ctx context.Context) error { return b.put(ctx, "hold", barrierHeld) }

// Release removes the barrier, and all waiters continue. It returns no error if the barrier is not
// raised.
func (b *Barrier) Release(ctx context.Context) error {
	return b.put(ctx, "release", barrierReleased)
}

// put writes the state if it differs from the present state.
func (b *Barrier) put(ctx context.Context, op, state string) error {
	if err := checkName(op, b.name); err != nil {
		return err
	}
	r, err := b.client.get(ctx, b.key())
	if err != nil {
		return fail(op, b.name, err)
	}
	var current *mvccpb.KeyValue
	if len(r.Kvs) > 0 {
		current = r.Kvs[0]
	}
	for {
		if isHeld(current) == (state == barrierHeld) {
			return nil
		}
		modified := int64(0)
		if current != nil {
			modified = current.ModRevision
		}
		done, err := b.client.swap(ctx, b.key(), modified, state+b.client.nonce())
		if err != nil {
			return fail(op, b.name, err)
		}
		if done.done {
			return nil
		}
		current = done.current
	}
}

// Wait returns when the barrier is not raised, at once if it is not raised now.
func (b *Barrier) Wait(ctx context.Context) error {
	const op = "wait"
	if err := checkName(op, b.name); err != nil {
		return err
	}
	for {
		r, err := b.client.get(ctx, b.key())
		if err != nil {
			return fail(op, b.name, err)
		}
		if len(r.Kvs) == 0 || !isHeld(r.Kvs[0]) {
			return nil
		}
		passed := false
		err = b.client.awaitChange(ctx, b.key(), r.Header.Revision, func(e *clientv3.Event) bool {
			passed = e.Type == clientv3.EventTypeDelete || !isHeld(e.Kv)
			return passed
		})
		if err != nil {
			return fail(op, b.name, err)
		}
		if passed {
			return nil // even if the barrier is raised again by now
		}
	}
}
