package store

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Users, roles and whether they count lie in the state, and change by commands. What they permit is
// decided by package authority. A command with an AuthInfo is a client's, and is checked when it is
// applied; one without is of the servers themselves.
//
// INVARIANT: Store.authority is made of the same records as the database has, but for the moment in
// which an application is committed. What is read on behalf of a client is checked against the
// revision of users and roles that its own state has (permitRead).

// Authority is this member's newest version of users and roles.
func (s *Store) Authority() *authority.State { return s.authority.Load() }

// AuthorityChanged is closed when Authority changes next. A caller that asks for it before
// Authority misses no change.
func (s *Store) AuthorityChanged() <-chan struct{} { return s.authorityNews.next() }

func (s *Store) setAuthority(state *authority.State) {
	s.authority.Store(state)
	s.authorityNews.tell()
}

// news tells those that wait that something has changed. The zero value can be used.
type news struct {
	mu struct {
		sync.Mutex
		changed chan struct{} // nil: nothing waits
	}
}

func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.changed == nil {
		n.mu.changed = make(chan struct{})
	}
	return n.mu.changed
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.changed != nil {
		close(n.mu.changed)
		n.mu.changed = nil
	}
}

// ChangeAuth is a command that changes users and roles, on behalf of a client.
func ChangeAuth(who *storepb.AuthInfo, change *storepb.AuthChange) *storepb.Command {
	return &storepb.Command{Auth: who, Op: &storepb.Command_AuthChange{AuthChange: change}}
}

// validateAuthChange is the part of checking that needs no state.
func validateAuthChange(c *storepb.AuthChange) error {
	switch c := c.GetChange().(type) {
	case nil:
		return fmt.Errorf("%w: no change of users or roles", ErrInvalid)
	case *storepb.AuthChange_Enable:
		if len(c.Enable.GetKey()) < authority.KeyBytes {
			return fmt.Errorf("%w: a key for tokens has at least %d bytes", ErrInvalid,
				authority.KeyBytes)
		}
	}
	return nil
}

// currentAuthority is what the entries so far have made of users and roles.
func (a *application) currentAuthority() *authority.State {
	if a.authority != nil {
		return a.authority
	}
	return a.store.Authority()
}

// authorize refuses a command that its client may not do by now.
func (a *application) authorize(c *storepb.Command, result *storepb.Result) error {
	if c.Auth == nil || !a.currentAuthority().Enabled() {
		return nil
	}
	return refuseAuth(result, a.currentAuthority().Command(c, a.attachedKeys))
}

// refuseAuth fills in why a command has no effect. An error that is no refusal is returned.
func refuseAuth(result *storepb.Result, err error) error {
	var refused *authority.Error
	if errors.As(err, &refused) {
		refuse(result, refused.Code, "")
		return nil
	}
	return err
}

func (a *application) attachedKeys(lease int64) (keys [][]byte, err error) {
	err = a.read(func(r *reader) error {
		keys, err = attachedKeys(r, lease)
		return err
	})
	return keys, err
}

func (a *application) changeAuth(c *storepb.AuthChange, result *storepb.Result) error {
	next, writes, err := a.currentAuthority().Change(c)
	if err != nil {
		return refuseAuth(result, err)
	}
	for _, w := range writes {
		key := a.store.layout.authKey(w.Table, w.Name)
		if w.Record == nil {
			err = a.batch.Delete(key, nil)
		} else {
			err = a.set(key, w.Record)
		}
		if err != nil {
			return err
		}
	}
	if len(writes) > 0 {
		a.authority = next
	}
	return nil
}

func (l *layout) authKey(table authority.Table, name string) []byte {
	switch table {
	case authority.UserTable:
		return l.table(tableUser, []byte(name))
	case authority.RoleTable:
		return l.table(tableRole, []byte(name))
	}
	return l.auth
}

// authRecord reads the record of the state; nil if there is none.
func (r *reader) authRecord() (*storepb.AuthRecord, error) {
	value, ok, err := r.get(r.layout.auth)
	if err != nil || !ok {
		return nil, err
	}
	record := &storepb.AuthRecord{}
	if err := record.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("the record of authentication is malformed: %w", err)
	}
	return record, nil
}

// loadAuthority reads users and roles.
func loadAuthority(r *reader) (*authority.State, error) {
	record, err := r.authRecord()
	if err != nil {
		return nil, err
	}
	users, roles := map[string]*storepb.UserRecord{}, map[string]*storepb.RoleRecord{}
	err = r.named(tableUser, func(name string, value []byte) error {
		users[name] = &storepb.UserRecord{}
		return users[name].UnmarshalVT(value)
	})
	if err != nil {
		return nil, err
	}
	err = r.named(tableRole, func(name string, value []byte) error {
		roles[name] = &storepb.RoleRecord{}
		return roles[name].UnmarshalVT(value)
	})
	if err != nil {
		return nil, err
	}
	return authority.New(record, users, roles)
}

// named visits the records of a table whose keys are names.
func (r *reader) named(table byte, visit func(name string, value []byte) error) error {
	end := r.end(table)
	for ok := r.seek(r.table(table), end); ok; ok = r.next(end) {
		name, err := decodeNameKey(r.it.Key())
		if err != nil {
			return err
		}
		value, err := r.it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := visit(name, value); err != nil {
			return fmt.Errorf("record %q of table %q of the core's store is malformed: %w", name, table,
				err)
		}
	}
	return r.it.Error()
}

// authorityOf returns the users and roles of the state at hand; nil if they do not count in it.
// ErrOldRevision says that the state is newer than what is published of users and roles, or the
// other way round.
func (s *Store) authorityOf(r *reader) (*authority.State, error) {
	record, err := r.authRecord()
	if err != nil || !record.GetEnabled() {
		return nil, err
	}
	state := s.Authority()
	if !state.Enabled() || state.Revision() != record.Revision {
		return nil, authority.ErrOldRevision
	}
	return state, nil
}

// permitRead refuses a transaction that its client may not read from the state at hand.
func (s *Store) permitRead(r *reader, who *storepb.AuthInfo, t *storepb.Txn) error {
	if who == nil {
		return nil
	}
	state, err := s.authorityOf(r)
	if err != nil || state == nil {
		return err
	}
	return state.Txn(who, t, func(int64) ([][]byte, error) { return nil, nil })
}

// AttachedKeys are the keys of a lease as this member has them; none if there is no such lease.
func (s *Store) AttachedKeys(lease int64) (keys [][]byte, err error) {
	err = s.read(func(r *reader) error {
		keys, err = attachedKeys(r, lease)
		return err
	})
	return keys, err
}
