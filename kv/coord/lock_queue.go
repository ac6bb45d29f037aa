package coord

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lockQueue is the queue of the holders and waiters of a lock: each has a key, ordered by creation,
// and the first holds the lock. Each waiter watches its own key and one key before it, so that a
// release wakes one waiter.
type lockQueue struct {
	name string
	// keys is the prefix of the keys of this kind of waiter. before is the prefix of the keys for
	// which such a waiter waits.
	keys, before string
}

// enter waits in the queue until no key is before its own; then it holds the lock.
func (l lockQueue) enter(ctx context.Context, s *Session, value string) (*heldKey, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	key := l.keys + s.unique()
	made, err := s.create(ctx, key, value)
	if err != nil {
		return nil, err
	}
	if err := l.await(ctx, s, key, made.revision); err != nil {
		s.discard(key, false)
		return nil, err
	}
	return s.hold(l.name, key, made.revision), nil
}

// await returns nil when the key exists and no key is before it.
func (l lockQueue) await(ctx context.Context, s *Session, key string, created int64) error {
	last := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(created-1),
		clientv3.WithKeysOnly())
	for {
		r, err := s.client.read(ctx, clientv3.OpGet(key, clientv3.WithKeysOnly()),
			clientv3.OpGet(l.before, last...))
		if err != nil {
			return err
		}
		own, previous := one(r, 0), one(r, 1)
		switch {
		case own == nil || own.CreateRevision != created:
			if err := s.Err(); err != nil {
				return err
			}
			return because("its key "+key+" was deleted by somebody else while it waited", ErrLost)
		case previous == nil:
			return s.Err() // at a moment of this call, the key was the first
		}
		// The next read shows which of the two keys is gone.
		at := r.Header.Revision
		if err := either(ctx, s.client.gone(key, created, at),
			s.client.gone(string(previous.Key), previous.CreateRevision, at)); err != nil {
			if cause := context.Cause(ctx); cause != nil && s.Err() == nil {
				return because(text(err)+"; somebody else has it, or is before it in the line", ErrLocked,
					err)
			}
			return err
		}
	}
}

// try takes the lock if it would not have to wait, and fails with ErrLocked otherwise.
func (l lockQueue) try(ctx context.Context, s *Session, value string) (*heldKey, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	key := l.keys + s.unique()
	made, err := s.create(ctx, key, value,
		clientv3.Compare(clientv3.CreateRevision(l.before), "=", 0).WithPrefix())
	if err != nil {
		return nil, err
	}
	if made.revision == 0 {
		return nil, because("somebody has it, or waits for it", ErrLocked)
	}
	return s.hold(l.name, key, made.revision), nil
}
