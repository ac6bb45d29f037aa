package authority

import "github.com/tidemarkdb/tidemark/placement/store/storepb"

// Attached returns the keys of a lease; none if the lease does not exist.
type Attached func(lease int64) ([][]byte, error)

// Identified refuses a client without a user name.
func (s *State) Identified(who *storepb.AuthInfo) error {
	if who != nil && s.Enabled() && who.Revision == 0 {
		return ErrUserEmpty
	}
	return nil
}

// Admin refuses all users without the role root. The revision at which the user was checked does
// not matter.
func (s *State) Admin(who *storepb.AuthInfo) error {
	if who == nil || !s.Enabled() {
		return nil
	}
	if who.User == "" || who.Revision == 0 {
		return ErrUserEmpty
	}
	switch u := s.users[who.User]; {
	case u == nil:
		return ErrUserNotFound
	case !u.has(Root):
		return ErrPermissionDenied
	}
	return nil
}

// Read refuses a client that may not read a range of keys, in the forms of storepb.Range, or whose
// user was checked before users and roles last changed.
func (s *State) Read(who *storepb.AuthInfo, key, end []byte) error {
	return s.permit(who, key, end, func(a *access) []interval { return a.read })
}

// Write is Read for write permission.
func (s *State) Write(who *storepb.AuthInfo, key, end []byte) error {
	return s.permit(who, key, end, func(a *access) []interval { return a.write })
}

func (s *State) permit(
	who *storepb.AuthInfo, key, end []byte, of func(*access) []interval,
) error {
	switch {
	case who == nil || !s.Enabled():
		return nil
	case who.Revision == 0:
		return ErrUserEmpty
	case who.Revision < s.Revision():
		return ErrOldRevision
	}
	u := s.users[who.User]
	switch {
	case u == nil:
		return ErrPermissionDenied
	case u.has(Root), covers(of(s.accessOf(u)), key, end):
		return nil
	}
	return ErrPermissionDenied
}

func (s *State) accessOf(u *user) *access {
	if a := u.access.Load(); a != nil {
		return a
	}
	var roles []*storepb.RoleRecord
	for _, role := range u.record.Roles {
		roles = append(roles, s.roles[role]) // root may have no record
	}
	a := accessOf(roles)
	u.access.Store(a)
	return a
}

// WriteAll refuses a client that may not write each of some keys. Users with the role root may,
// whenever they were checked.
func (s *State) WriteAll(who *storepb.AuthInfo, keys [][]byte) error {
	return s.all(who, keys, s.Write)
}

// ReadAll is WriteAll for read permission.
func (s *State) ReadAll(who *storepb.AuthInfo, keys [][]byte) error {
	return s.all(who, keys, s.Read)
}

func (s *State) all(
	who *storepb.AuthInfo, keys [][]byte, check func(*storepb.AuthInfo, []byte, []byte) error,
) error {
	if s.Admin(who) == nil {
		return nil
	}
	for _, key := range keys {
		if err := check(who, key, nil); err != nil {
			return err
		}
	}
	return nil
}

// Txn refuses a transaction that its client is not permitted, in any branch. Comparisons need read
// permission, and so do writes that return previous values. A put under a lease needs the
// permissions that revoking the lease would need. err is an Error, or an error of attached.
func (s *State) Txn(who *storepb.AuthInfo, t *storepb.Txn, attached Attached) error {
	if who == nil || !s.Enabled() {
		return nil
	}
	for _, c := range t.GetCompare() {
		if err := s.Read(who, c.GetKey(), c.GetRangeEnd()); err != nil {
			return err
		}
	}
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if err := s.operation(who, op, attached); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) operation(who *storepb.AuthInfo, op *storepb.Op, attached Attached) error {
	switch op := op.GetOp().(type) {
	case *storepb.Op_Range:
		return s.Read(who, op.Range.GetKey(), op.Range.GetRangeEnd())
	case *storepb.Op_Put:
		p := op.Put
		if err := s.Write(who, p.GetKey(), nil); err != nil {
			return err
		}
		if p.Lease != 0 {
			if err := s.lease(who, p.Lease, attached); err != nil {
				return err
			}
		}
		if p.Previous {
			return s.Read(who, p.Key, nil)
		}
	case *storepb.Op_DeleteRange:
		d := op.DeleteRange
		if err := s.Write(who, d.GetKey(), d.GetRangeEnd()); err != nil {
			return err
		}
		if d.Previous {
			return s.Read(who, d.Key, d.RangeEnd)
		}
	case *storepb.Op_Txn:
		return s.Txn(who, op.Txn, attached)
	}
	return nil
}

// lease refuses a client that may not write all keys of a lease, and so may not end it.
func (s *State) lease(who *storepb.AuthInfo, lease int64, attached Attached) error {
	if s.Admin(who) == nil {
		return nil
	}
	keys, err := attached(lease)
	if err != nil {
		return err
	}
	return s.WriteAll(who, keys)
}

// Command refuses a command that its client is not permitted. err is an Error, or an error of
// attached.
func (s *State) Command(c *storepb.Command, attached Attached) error {
	who := c.GetAuth()
	if who == nil || !s.Enabled() {
		return nil
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return s.Txn(who, op.Txn, attached)
	case *storepb.Command_LeaseGrant:
		return s.Identified(who)
	case *storepb.Command_LeaseRevoke:
		if err := s.Identified(who); err != nil {
			return err
		}
		return s.lease(who, op.LeaseRevoke.GetId(), attached)
	}
	return s.Admin(who)
}
