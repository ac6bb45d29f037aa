package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// The members of the core lie in the state, beside the applied index, and change by entries of the
// log. The configuration of the Raft group is derived from them, so the two cannot differ. The
// replica id serves as the member's host in the group: a directory holds one member, whose address
// may change.
//
// INVARIANT: a state without a record of members has the founding members. A member that was added
// later has no founding members, and knows no members until it has a snapshot; until then it grants
// no vote.

// ChangeMembers is a command that replaces the members. The version of next must be one above the
// present version.
func ChangeMembers(next *storepb.Members) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_ChangeMembers{ChangeMembers: &storepb.ChangeMembers{
		Version: next.GetVersion() - 1, Next: next}}}
}

// FollowMembers is a command that replaces the members at a version by members with any higher
// version: a store whose members follow those of another store may skip versions.
func FollowMembers(version uint64, next *storepb.Members) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_ChangeMembers{ChangeMembers: &storepb.ChangeMembers{
		Version: version, Next: next}}}
}

// MembersChanged returns a channel that closes at the next change of Members.
func (s *Store) MembersChanged() <-chan struct{} { return s.members.next() }

// Members are the core's members in the applied state; the caller must not change them. They are
// empty on a member that still waits for its snapshot.
func (s *Store) Members() *storepb.Members { return s.members.value.Load() }

// Configuration implements group.Configured.
func (s *Store) Configuration() group.Configuration { return s.configurationOf(s.Members()) }

// Configuration implements group.Configured. It comes from the same engine snapshot as the data.
func (p *openSnapshot) Configuration() group.Configuration {
	return p.store.configurationOf(p.members)
}

// Configuration implements group.Configured.
func (p *staged) Configuration() group.Configuration { return p.store.configurationOf(p.members) }

// configurationOf is ConfigurationOf with the founding members. These may have a version: a store
// that is founded beside another store takes the version of the other store's record at that time.
func (s *Store) configurationOf(m *storepb.Members) group.Configuration {
	c := command.ConfigurationOf(m)
	c.Changed = m.GetVersion() > s.config.Founding.GetVersion()
	return c
}

// founding returns the members of a state without a record of members.
func (s *Store) founding() *storepb.Members {
	if f := s.config.Founding; f != nil {
		return f
	}
	return &storepb.Members{}
}
