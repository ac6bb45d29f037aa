package authority

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// The rights of a role to a range of keys of a keyspace, as sums of bits; each includes the one
// before.
const (
	KeyspaceRead uint32 = 1 << iota
	KeyspaceWrite
	// KeyspaceAdmin can only be granted for a whole keyspace.
	KeyspaceAdmin

	allRights = KeyspaceRead | KeyspaceWrite | KeyspaceAdmin
)

// soundKeyspace reports whether a permission is valid.
func soundKeyspace(p *storepb.KeyspacePermission) bool {
	if p.Keyspace == 0 || p.Rights == 0 || p.Rights&^allRights != 0 {
		return false
	}
	if p.Rights&KeyspaceAdmin != 0 {
		return wholeKeyspace(p)
	}
	return len(p.Key) == 0 && bytes.Equal(p.RangeEnd, openEnd) || soundRange(p.Key, p.RangeEnd)
}

func wholeKeyspace(p *storepb.KeyspacePermission) bool {
	return len(p.Key) == 0 && bytes.Equal(p.RangeEnd, openEnd)
}

func compareKeyspaces(a, b *storepb.KeyspacePermission) int {
	return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), bytes.Compare(a.Key, b.Key),
		bytes.Compare(a.RangeEnd, b.RangeEnd))
}

// grantKeyspace adds rights to the role's rights for a range.
func (n *changing) grantKeyspace(c *storepb.KeyspaceGrant) error {
	p, role := c.GetPermission(), n.roles[c.GetRole()]
	switch {
	case p == nil:
		return ErrPermissionNotGiven
	case !soundKeyspace(p):
		return ErrInvalidManagement
	case role == nil:
		return ErrRoleNotFound
	}
	all := slices.Clone(role.Keyspaces)
	at, there := slices.BinarySearchFunc(all, p, compareKeyspaces)
	switch {
	case there && all[at].Rights|p.Rights == all[at].Rights:
		return nil
	case there:
		all[at] = withRights(p, all[at].Rights|p.Rights)
	default:
		all = slices.Insert(all, at, p)
	}
	n.saveRole(c.Role, &storepb.RoleRecord{Permissions: role.Permissions, Keyspaces: all})
	n.commit()
	return nil
}

// revokeKeyspace removes rights from the role's rights for a range.
func (n *changing) revokeKeyspace(c *storepb.KeyspaceGrant) error {
	p, role := c.GetPermission(), n.roles[c.GetRole()]
	switch {
	case role == nil:
		return ErrRoleNotFound
	case p == nil:
		return ErrPermissionNotGiven
	}
	rights := p.Rights
	if rights == 0 {
		rights = allRights
	}
	at, there := slices.BinarySearchFunc(role.Keyspaces, p, compareKeyspaces)
	if !there || role.Keyspaces[at].Rights&rights == 0 {
		return ErrPermissionNotGranted
	}
	left := slices.Clone(role.Keyspaces)
	if rest := left[at].Rights &^ rights; rest == 0 {
		left = slices.Delete(left, at, at+1)
	} else {
		left[at] = withRights(p, rest)
	}
	n.saveRole(c.Role, &storepb.RoleRecord{Permissions: role.Permissions, Keyspaces: left})
	n.commit()
	return nil
}

func withRights(p *storepb.KeyspacePermission, rights uint32) *storepb.KeyspacePermission {
	return &storepb.KeyspacePermission{Keyspace: p.Keyspace, Rights: rights, Key: p.Key,
		RangeEnd: p.RangeEnd}
}

// KeyspacePermissions are the permissions of a role for the data of keyspaces, by keyspace and key;
// not to be changed. The role root may do everything, without permissions of its own.
func (s *State) KeyspacePermissions(role string) ([]*storepb.KeyspacePermission, error) {
	r := s.roles[role]
	if r == nil {
		return nil, ErrRoleNotFound
	}
	return r.Keyspaces, nil
}

// keyspaceAccess are the rights of a user to one keyspace.
type keyspaceAccess struct {
	read, write []interval
	admin       bool
}

// keyspacesOf joins the keyspace permissions of roles.
func keyspacesOf(roles []*storepb.RoleRecord) map[uint64]*keyspaceAccess {
	all := map[uint64]*keyspaceAccess{}
	for _, role := range roles {
		for _, p := range role.GetKeyspaces() {
			a := all[p.Keyspace]
			if a == nil {
				a = &keyspaceAccess{}
				all[p.Keyspace] = a
			}
			i := intervalOf(p.Key, p.RangeEnd)
			if p.Rights&KeyspaceRead != 0 {
				a.read = append(a.read, i)
			}
			if p.Rights&KeyspaceWrite != 0 {
				a.write = append(a.write, i)
			}
			a.admin = a.admin || p.Rights&KeyspaceAdmin != 0
		}
	}
	for _, a := range all {
		a.read, a.write = join(a.read), join(a.write)
	}
	return all
}

// Rights are the rights of one user to the data of keyspaces, in one version of the tables. Any
// goroutine may use them.
type Rights struct {
	root   bool
	access *access
}

// RightsOf returns the rights of a user to keyspaces; nil if the user does not exist.
func (s *State) RightsOf(name string) *Rights {
	u := s.users[name]
	if u == nil {
		return nil
	}
	return &Rights{root: u.has(Root), access: s.accessOf(u)}
}

// Root reports whether the user has all rights to all keyspaces.
func (r *Rights) Root() bool { return r.root }

// NoKeyspace reports whether the user has no right to any keyspace.
func (r *Rights) NoKeyspace() bool { return !r.root && len(r.access.keyspaces) == 0 }

// May reports whether the user has all of some rights for all keys from start on and below end; a
// nil end means no upper end. It does not allocate.
func (r *Rights) May(rights uint32, keyspace uint64, start, end []byte) bool {
	if r.root {
		return true
	}
	a := r.access.keyspaces[keyspace]
	return a != nil && (rights&KeyspaceAdmin == 0 || a.admin) &&
		(rights&KeyspaceRead == 0 || includes(a.read, start, end)) &&
		(rights&KeyspaceWrite == 0 || includes(a.write, start, end))
}

// MayAny reports whether the user has any right to any key of a keyspace.
func (r *Rights) MayAny(keyspace uint64) bool {
	return r.root || r.access.keyspaces[keyspace] != nil
}

// MayKey is May for one key.
func (r *Rights) MayKey(rights uint32, keyspace uint64, key []byte) bool {
	if r.root {
		return true
	}
	a := r.access.keyspaces[keyspace]
	return a != nil && (rights&KeyspaceAdmin == 0 || a.admin) &&
		(rights&KeyspaceRead == 0 || contains(a.read, key)) &&
		(rights&KeyspaceWrite == 0 || contains(a.write, key))
}

// below returns the last interval that starts at or below a key; nil if none does.
func below(all []interval, key []byte) *interval {
	low, high := 0, len(all)
	for low < high {
		middle := int(uint(low+high) / 2)
		if bytes.Compare(all[middle].start, key) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return nil
	}
	return &all[low-1]
}

// contains reports whether a key is in one of some intervals.
func contains(all []interval, key []byte) bool {
	i := below(all, key)
	return i != nil && (i.end == nil || bytes.Compare(key, i.end) < 0)
}

// includes reports whether one interval holds all keys from start on and below end.
func includes(all []interval, start, end []byte) bool {
	i := below(all, start)
	return i != nil && (i.end == nil || bytes.Compare(start, i.end) < 0) &&
		compareEnds(end, i.end) <= 0
}
