package coord

import "context"

// Mutex is a lock that at most one session holds, among all sessions of all clients. Waiters get
// the lock in the order of their arrival; a release wakes the next waiter only. A Mutex is not
// reentrant: a holder that locks it again waits for itself.
type Mutex struct {
	client *Client
	name   string
}

// Mutex returns the lock with a name.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{client: c, name: name} }

func (m *Mutex) line() lockQueue {
	keys := m.client.path("lock", m.name)
	return lockQueue{name: m.name, keys: keys, before: keys}
}

// Lock waits until it has the lock, or until ctx or the session ends. If it fails, its key blocks
// others only until the key is removed. If ctx ends while another session holds the lock or is
// ahead in the queue, the error is also of the kind ErrLocked.
func (m *Mutex) Lock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "lock", m.line(), s, lockQueue.enter)
}

// TryLock takes the lock if nobody holds it or waits for it, and fails with ErrLocked otherwise.
func (m *Mutex) TryLock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "try to lock", m.line(), s, lockQueue.try)
}

// Lock is a held lock, of a Mutex or RWMutex.
type Lock struct{ held *heldKey }

func lock(ctx context.Context, op string, l lockQueue, s *Session,
	take func(lockQueue, context.Context, *Session, string) (*heldKey, error)) (*Lock, error) {
	if err := checkName(op, l.name); err != nil {
		return nil, err
	}
	h, err := take(l, ctx, s, s.label)
	if err != nil {
		return nil, fail(op, l.name, err)
	}
	return &Lock{h}, nil
}

// Held returns a context that ends when the lock is no longer held: the lock was unlocked, its
// session has ended, or its key was deleted. context.Cause returns the reason. Do the work that the
// lock protects under this context.
//
// The end of the context does not stop requests that were already sent, such as a write. Use Token
// against such requests.
func (l *Lock) Held() context.Context { return l.held.ctx }

// Err returns nil while the lock is held. Unlike Held it reads the clock, as Session.Err does.
func (l *Lock) Err() error { return l.held.err() }

// Token is higher than the token of every earlier holder. The protected data has to refuse holders
// with a lower token than it has seen. Fence does that for keyspaces.
func (l *Lock) Token() Token { return Token(l.held.created) }

// Key is the key that stands for the lock in the service.
func (l *Lock) Key() string { return l.held.key }

// Unlock releases the lock. If the lock was lost before, Unlock returns an error: others may have
// held the lock in the meantime. If ctx ends first, the lock is released in the background
// (ErrOutcomeUnknown). ctx may be the context of Held, or a child of it: Unlock ends that context,
// and continues until its deadline.
func (l *Lock) Unlock(ctx context.Context) error { return l.held.release(ctx, "unlock") }
