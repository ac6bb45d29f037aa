package store

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// Users, roles and whether authentication is enabled lie in the state, and change by commands.
// Package authority decides what they permit. A command with an AuthInfo comes from a client, and
// is checked when it is applied; a command without an AuthInfo comes from a server.
//
// INVARIANT: Store.authority is built from the records in the database, except while an application
// is being committed. A read on behalf of a client is checked against the revision of users and
// roles in the state that it reads (package reading).

// Authority is this member's newest version of users and roles.
func (s *Store) Authority() *authority.State { return s.authority.value.Load() }

// AuthorityChanged returns a channel that closes at the next change of Authority. A caller that
// takes the channel before it reads Authority misses no change.
func (s *Store) AuthorityChanged() <-chan struct{} { return s.authority.next() }

// published is a value whose changes others can await.
type published[T any] struct {
	value atomic.Pointer[T]
	mu    struct {
		sync.Mutex
		changed chan struct{} // nil while nobody waits
	}
}

// next returns a channel that closes when the value is replaced next.
func (p *published[T]) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.changed == nil {
		p.mu.changed = make(chan struct{})
	}
	return p.mu.changed
}

func (p *published[T]) replace(value *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value.Store(value)
	if p.mu.changed != nil {
		close(p.mu.changed)
		p.mu.changed = nil
	}
}

// ChangeAuth is a command that changes users and roles, on behalf of a client.
func ChangeAuth(who *storepb.AuthInfo, change *storepb.AuthChange) *storepb.Command {
	return &storepb.Command{Auth: who, Op: &storepb.Command_AuthChange{AuthChange: change}}
}

// AttachedKeys are the keys attached to a lease, as far as this member knows; none if the lease
// does not exist.
func (s *Store) AttachedKeys(lease int64) (keys [][]byte, err error) {
	err = s.ReadState(func(r *tables.Reader) error {
		keys, err = r.AttachedKeys(lease)
		return err
	})
	return keys, err
}
