package coord

import "context"

// RWMutex is a lock that many readers or one writer can hold. All of them wait in one queue: a
// reader waits for the writers before it, and a writer waits for all holders before it. So neither
// readers nor writers starve.
type RWMutex struct {
	client *Client
	name   string
}

// RWMutex returns the read-write lock with a name. It is independent of the Mutex with the same
// name.
func (c *Client) RWMutex(name string) *RWMutex { return &RWMutex{client: c, name: name} }

func (m *RWMutex) writers() lockQueue {
	all := m.client.path("rwlock", m.name)
	return lockQueue{name: m.name, keys: all + "write/", before: all}
}

func (m *RWMutex) readers() lockQueue {
	all := m.client.path("rwlock", m.name)
	return lockQueue{name: m.name, keys: all + "read/", before: all + "write/"}
}

// Lock waits until it has the lock alone, or ctx or the session ends.
func (m *RWMutex) Lock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "lock", m.writers(), s, lockQueue.enter)
}

// TryLock takes the lock for writing if nobody holds it or waits for it, and fails with ErrLocked
// otherwise.
func (m *RWMutex) TryLock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "try to lock", m.writers(), s, lockQueue.try)
}

// RLock waits until it holds the lock as a reader, or until ctx or the session ends. The token of a
// reader is higher than the tokens of the writers before it, and lower than the tokens of the
// writers after it.
func (m *RWMutex) RLock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "lock for reading", m.readers(), s, lockQueue.enter)
}

// TryRLock takes the lock as a reader if no writer holds it or waits for it, and fails with
// ErrLocked otherwise.
func (m *RWMutex) TryRLock(ctx context.Context, s *Session) (*Lock, error) {
	return lock(ctx, "try to lock for reading", m.readers(), s, lockQueue.try)
}
