package store

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The members of the core lie in the state, beside the applied index, and change by entries of the
// log. The configuration of the Raft group is made of them, so the two cannot differ. The host of a
// member is its replica id: a directory has one member, and an address is only where that is found.
//
// INVARIANT: a state without a record of members has those of the founding. A member that was not
// founded has no founding, and knows of no members until a snapshot has brought them; until then it
// grants no vote.

const (
	// maxMembers bounds what a record lists, and maxRemoved the removed members that it remembers.
	maxMembers = 16
	maxRemoved = 64
)

var memberRoles = map[storepb.MemberRole]group.Role{
	storepb.MemberRole_VOTER:    group.Voter,
	storepb.MemberRole_LEARNER:  group.Learner,
	storepb.MemberRole_INCOMING: group.Incoming,
	storepb.MemberRole_OUTGOING: group.Outgoing,
}

// ConfigurationOf is the Raft configuration that a record of members says, of a store that was
// founded with members of version 0.
func ConfigurationOf(m *storepb.Members) group.Configuration {
	c := group.Configuration{Changed: m.GetVersion() > 0}
	for _, x := range m.GetMembers() {
		c.Members = append(c.Members, group.Member{Replica: keys.ReplicaID(x.Replica), Host: x.Replica,
			Role: memberRoles[x.Role]})
	}
	return c
}

// ChangeMembers is a command that replaces the members by others, whose version is one above that
// of the present ones.
func ChangeMembers(next *storepb.Members) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_ChangeMembers{ChangeMembers: &storepb.ChangeMembers{
		Version: next.GetVersion() - 1, Next: next}}}
}

// FollowMembers is a command that replaces the members at a version by others, whose version is
// higher by any number: a store whose members follow those of another one may pass some of them by.
func FollowMembers(version uint64, next *storepb.Members) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_ChangeMembers{ChangeMembers: &storepb.ChangeMembers{
		Version: version, Next: next}}}
}

// currentMembers are the members as of what is applied. A record is not changed.
type currentMembers struct {
	record atomic.Pointer[storepb.Members]
	mu     struct {
		sync.Mutex
		// changed is closed when the record is replaced; nil: nothing waits for that.
		changed chan struct{}
	}
}

func (m *currentMembers) replace(next *storepb.Members) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.Store(next)
	if m.mu.changed != nil {
		close(m.mu.changed)
		m.mu.changed = nil
	}
}

// MembersChanged is a channel that is closed at the next change of Members.
func (s *Store) MembersChanged() <-chan struct{} {
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.changed == nil {
		m.mu.changed = make(chan struct{})
	}
	return m.mu.changed
}

// Members are the core's members as of what is applied here; they are not to be changed. They are
// empty on a member that has not been filled yet.
func (s *Store) Members() *storepb.Members { return s.members.record.Load() }

// Configuration implements group.Configured.
func (s *Store) Configuration() group.Configuration { return s.configurationOf(s.Members()) }

// Configuration implements group.Configured: it is of the same engine snapshot as the data.
func (p *snapshot) Configuration() group.Configuration {
	return p.store.configurationOf(p.members)
}

// Configuration implements group.Configured.
func (p *staged) Configuration() group.Configuration { return p.store.configurationOf(p.members) }

// configurationOf is ConfigurationOf, and knows the founding, which may have a version: that of a
// store that is founded beside another one has the version of the other's record at that time. Its
// first entries are where all begin that were founded with it.
func (s *Store) configurationOf(m *storepb.Members) group.Configuration {
	c := ConfigurationOf(m)
	c.Changed = m.GetVersion() > s.config.Founding.GetVersion()
	return c
}

// founding are the members of a state without a record of them.
func (s *Store) founding() *storepb.Members {
	if f := s.config.Founding; f != nil {
		return f
	}
	return &storepb.Members{}
}

// members reads the record; nil if there is none.
func (r *reader) members() (*storepb.Members, error) {
	value, ok, err := r.get(r.layout.members)
	if err != nil || !ok {
		return nil, err
	}
	return decodeMembers(value)
}

func decodeMembers(value []byte) (*storepb.Members, error) {
	m := &storepb.Members{}
	err := m.UnmarshalVT(value)
	if err == nil {
		err = soundMembers(m)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of the core's members is malformed: %w", err)
	}
	return m, nil
}

// soundMembers says what is wrong with a record.
func soundMembers(m *storepb.Members) error {
	if m.GetVersion() == 0 {
		return fmt.Errorf("members without a version")
	}
	servers := map[uint64]bool{}
	for _, x := range m.Members {
		switch {
		case x.GetServer() == 0 || x.Address == "":
			return fmt.Errorf("member %d has no server id or no address", x.GetReplica())
		case servers[x.Server]:
			return fmt.Errorf("server %016x is listed twice", x.Server)
		case memberRoles[x.Role] == 0:
			return fmt.Errorf("member %d has role %d, which this version does not know", x.Replica,
				x.Role)
		case x.Replica >= m.NextReplica:
			return fmt.Errorf("member %d has an id that is to be given out yet: %d is next", x.Replica,
				m.NextReplica)
		}
		servers[x.Server] = true
	}
	c := ConfigurationOf(m)
	return c.Validate()
}

// validateMembers is the part of checking that needs no state.
func validateMembers(m *storepb.Members) error {
	if err := soundMembers(m); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(m.Members) > maxMembers || len(m.Removed) > maxRemoved {
		return fmt.Errorf("%w: %d members, and %d removed ones; at most %d and %d", ErrTooLarge,
			len(m.Members), len(m.Removed), maxMembers, maxRemoved)
	}
	return nil
}

// stepOf says whether one record of members follows from another by one step, and whether that step
// changes the configuration.
func stepOf(now, next *storepb.Members) (change bool, err error) {
	if err := soundMembers(next); err != nil {
		return false, err
	}
	least := uint64(1)
	for _, x := range now.GetMembers() {
		least = max(least, x.Replica+1)
	}
	if next.NextReplica < max(least, now.GetNextReplica()) {
		return false, fmt.Errorf("%d would be the next replica id, which may have been given out",
			next.NextReplica)
	}
	for _, x := range next.Members {
		was := memberOf(now, x.Replica)
		switch {
		case was == nil && x.Replica < max(least, now.GetNextReplica()):
			return false, fmt.Errorf("replica id %d was given out before", x.Replica)
		case was != nil && was.Server != x.Server:
			return false, fmt.Errorf("member %d would become another server", x.Replica)
		}
	}
	from, to := ConfigurationOf(now), ConfigurationOf(next)
	if from.Equal(&to) {
		return false, nil
	}
	return true, from.CanBecome(&to)
}

func memberOf(m *storepb.Members, replica uint64) *storepb.Member {
	at, found := slices.BinarySearchFunc(m.GetMembers(), replica,
		func(x *storepb.Member, id uint64) int { return cmp.Compare(x.Replica, id) })
	if !found {
		return nil
	}
	return m.Members[at]
}

// changeMembers applies a command.
func (a *application) changeMembers(c *storepb.ChangeMembers, result *storepb.Result) error {
	now := a.members
	if now == nil {
		now = a.store.Members()
	}
	if c.GetVersion() != now.GetVersion() || c.GetNext().GetVersion() <= c.GetVersion() {
		refuse(result, storepb.Code_MEMBERS_CHANGED, "the members are at version %d", now.GetVersion())
		return nil
	}
	change, err := stepOf(now, c.Next)
	if err == nil && change != a.change {
		err = fmt.Errorf("the entry is marked as a change of the configuration: %v, and it is one: %v",
			a.change, change)
	}
	if err != nil {
		refuse(result, storepb.Code_INVALID, "%s", err.Error())
		return nil
	}
	a.members = c.Next
	return a.set(a.store.layout.members, c.Next)
}

// checkMembers refuses to propose what would be refused, or would end with this leader outside.
func (s *Store) checkMembers(c *storepb.ChangeMembers) error {
	now := s.Members()
	if now.GetVersion() != c.GetVersion() {
		return fmt.Errorf("%w: they are at version %d", ErrMembersChanged, now.GetVersion())
	}
	change, err := stepOf(now, c.GetNext())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	l, _ := s.Leadership()
	if to := ConfigurationOf(c.Next); change && l.IsLeader && !to.Electable(l.Leader) {
		return fmt.Errorf("%w: member %s leads, and would not be a voter at the end of it: it has to "+
			"hand over before", ErrInvalid, l.Leader)
	}
	return nil
}

// propose hands a command to the group, as what it is.
func (s *Store) propose(handle Group, term uint64, c *storepb.Command, data []byte) error {
	op, ok := c.Op.(*storepb.Command_ChangeMembers)
	if ok {
		if change, err := stepOf(s.Members(), op.ChangeMembers.Next); err == nil && change {
			return handle.ProposeChange(term, data, ConfigurationOf(op.ChangeMembers.Next))
		}
	}
	return handle.Propose(term, data)
}
