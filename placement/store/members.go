package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// The members of the core lie in the state, beside the applied index, and change by entries of the
// log. The configuration of the Raft group is derived from them, so the two cannot differ. The host
// of a member is its replica id: a directory has one member, and an address only says where it is.
//
// INVARIANT: a state without a record of members has those of the founding. A member that was not
// founded has no founding, and knows of no members until a snapshot has brought them; until then it
// grants no vote.

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

// MembersChanged is a channel that is closed at the next change of Members.
func (s *Store) MembersChanged() <-chan struct{} { return s.members.next() }

// Members are the core's members as of what is applied here; they are not to be changed. They are
// empty on a member that has not been filled yet.
func (s *Store) Members() *storepb.Members { return s.members.value.Load() }

// Configuration implements group.Configured.
func (s *Store) Configuration() group.Configuration { return s.configurationOf(s.Members()) }

// Configuration implements group.Configured: it is of the same engine snapshot as the data.
func (p *openSnapshot) Configuration() group.Configuration {
	return p.store.configurationOf(p.members)
}

// Configuration implements group.Configured.
func (p *staged) Configuration() group.Configuration { return p.store.configurationOf(p.members) }

// configurationOf is ConfigurationOf that knows the founding. The founding may have a version: a
// store that is founded beside another store has the version of the other's record at that time.
// All members that were founded together begin with its first entries.
func (s *Store) configurationOf(m *storepb.Members) group.Configuration {
	c := command.ConfigurationOf(m)
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
