package coord

import (
	"context"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Token is a fencing number: the revision at which the key of a lock, leadership or claim was
// created. Of two holders of the same object the later one has the higher token, also after the
// service was restored from a snapshot, if its revisions were raised then (`tidemark coord import`
// does so, and `etcdutl snapshot restore` with --bump-revision). Tokens of different services
// cannot be compared.
type Token int64

// heldKey is a key held under a session, until it is released or deleted.
type heldKey struct {
	session *Session
	name    string
	key     string
	created int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	// finishing is set while the holder itself is deleting the key.
	finishing atomic.Bool
	// doubtful is set if the holder's deletion of the key has an unknown outcome, and may be executed
	// later.
	doubtful atomic.Bool

	// mu is held during calls that write the key, so that they run one after the other.
	mu       sync.Mutex
	modified int64
}

// hold watches a key that the session has created.
func (s *Session) hold(name, key string, created int64) *heldKey {
	h := &heldKey{session: s, name: name, key: key, created: created, modified: created}
	h.ctx, h.cancel = context.WithCancelCause(context.WithValue(s.ctx, belonging{}, h))
	h.watch(created)
	return h
}

// watch waits in the background until the key is gone. The key existed at the revision from; if
// from is 0, watch first checks that it exists.
func (h *heldKey) watch(from int64) {
	h.session.background(func() {
		if h.session.client.awaitGone(h.ctx, h.key, h.created, from) == nil && !h.finishing.Load() {
			h.lost()
		}
	})
}

// lost ends the hold after the key was seen to be deleted, or created again by another client.
func (h *heldKey) lost() {
	err := &Error{Op: "hold", Name: h.name, Message: "its key " + h.key +
		" was deleted by somebody else", wraps: []error{ErrLost}}
	if h.doubtful.Load() {
		err.Message = "its key " + h.key + " is gone; whether its holder's deletion of it did that, " +
			"whose outcome was not known, or somebody else is not known either"
		err.wraps = []error{ErrOutcomeUnknown}
	}
	h.gone(err)
}

// gone ends the hold on a key that is deleted. Only the first call has an effect, because the key
// may be used again afterwards.
func (h *heldKey) gone(err *Error) {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.cancel(err)
	if context.Cause(h.ctx) == error(err) {
		delete(h.session.mu.keys, h.key)
	}
}

// outlive returns a context for a call that releases h. When the session has ended, the key is gone
// anyway.
func (h *heldKey) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return outlive(ctx, belonging{}, h, h.session.Left())
}

func (h *heldKey) released(message string) *Error {
	return &Error{Op: "hold", Name: h.name, Message: message, wraps: []error{ErrReleased}}
}

// err returns nil while the key is held.
func (h *heldKey) err() error {
	if err := h.session.Err(); err != nil {
		return err
	}
	return context.Cause(h.ctx)
}

// release deletes the key. If the key was lost before, release returns an error. ctx may be h.ctx,
// or a child of it.
func (h *heldKey) release(ctx context.Context, op string) error {
	ctx, done := h.outlive(ctx)
	defer done()
	before := h.err()
	h.cancel(h.released("it was released"))
	if before != nil {
		return fail(op, h.name, before)
	}
	existed, err := h.session.remove(ctx, h.key, h.created)
	switch {
	case err == nil && !existed && h.doubtful.Load():
		err = because("its key "+h.key+" was gone; an earlier deletion of it, whose outcome was not "+
			"known, may have done that", ErrOutcomeUnknown)
	case err == nil && !existed:
		err = because("it was lost before: its key "+h.key+" was gone", ErrLost)
	}
	return fail(op, h.name, err)
}

// set writes the value of the key.
func (h *heldKey) set(ctx context.Context, op, value string) error {
	if err := h.err(); err != nil {
		return fail(op, h.name, err)
	}
	ctx, cancel := h.session.within(ctx)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	return fail(op, h.name, h.setLocked(ctx, value))
}

func (h *heldKey) setLocked(ctx context.Context, value string) error {
	c, maybe := h.session.client, false
	for attempt := 0; ; attempt++ {
		var r *clientv3.TxnResponse
		err := c.call(ctx, func(ctx context.Context) (err error) {
			r, err = c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(h.key), "=", h.modified)).
				Then(clientv3.OpPut(h.key, value, clientv3.WithLease(h.session.lease))).
				Else(clientv3.OpGet(h.key)).Commit()
			return err
		})
		switch {
		case err == nil && r.Succeeded:
			h.modified = r.Header.Revision
			return nil
		case err == nil:
			current := one(r, 0)
			if current == nil || current.CreateRevision != h.created {
				h.lost()
				return context.Cause(h.ctx)
			}
			h.modified = current.ModRevision
			if maybe && string(current.Value) == value {
				return nil
			}
			continue // another client wrote the key, or an earlier attempt of this call did
		}
		maybe = maybe || judge(err) == unknown
		ended := c.ended(ctx, h.session.gone(err))
		if ended == nil {
			ended = pause(ctx, attempt)
		}
		if ended != nil && maybe {
			return unknownOutcome(h.key, ended)
		} else if ended != nil {
			return ended
		}
	}
}
