package coord

import "context"

// Mutex is a lock that one holder has at a time, among all sessions of all clients. Those that wait
// get it in the order in which they came; a release wakes the next one only. It is not reentrant:
// a holder that locks it again waits for itself.
type Mutex struct {
	client *Client
	name   string
}

// Mutex is the lock of a name.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{client: c, name: name} }

func (m *Mutex) line() lockQueue {
	keys := m.client.path("lock", m.name)
	return lockQueue{name: m.name, keys: keys, before: keys}
}

// Lock waits until it has the lock, or ctx or the session ends. If it fails, no trace of it stays
// that others would wait for for longer than the removal takes. If ctx ends while another one is
// seen to have the lock, or to be before it in the line, the error is of the kind ErrLocked too.
func (m *Mutex) Lock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "lock", m.line(), s, lockQueue.enter)
}

// TryLock takes the lock if no other has it or waits for it, and fails with ErrLocked otherwise.
func (m *Mutex) TryLock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "try to lock", m.line(), s, lockQueue.try)
}

// Lock is a lock that is held, from Mutex or RWMutex.
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

// Held ends when the lock is not held any more: it was unlocked, its session has ended, or its key
// was deleted; context.Cause says which. What the lock protects is best done under this context.
//
// It does not stop what is on its way already, such as a write that was sent: Token does.
func (l *Lock) Held() context.Context { return l.held.ctx }

// Err is nil while the lock is held. Unlike Held it reads the clock itself, as Session.Err does.
func (l *Lock) Err() error { return l.held.err() }

// Token is higher than that of every earlier holder. What the lock protects has to refuse a holder
// with a lower token than it has seen: Fence does so for keyspaces.
func (l *Lock) Token() Token { return Token(l.held.created) }

// Key is the key that stands for the lock in the service.
func (l *Lock) Key() string { return l.held.key }

// Unlock gives the lock back. If it was lost before, the error says so: then others may have held
// it in the meantime. If ctx ends first, the lock is given back in the background
// (ErrOutcomeUnknown). ctx may be the context that Held returns, or a child of it: Unlock ends that,
// and goes on until its deadline.
func (l *Lock) Unlock(ctx context.Context) error { return l.held.release(ctx, "unlock") }
