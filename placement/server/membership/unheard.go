package membership

import "github.com/tidemarkdb/tidemark/placement/store"

// UnknowingMembers returns the addresses of the members of the core that keep commands of the
// newest format from being used, as far as this member knows: unheard have not reported what their
// versions know, neither to this member since it was started nor to a member that has passed it on;
// older have reported that they do not know all that this version does. Both are empty on a server
// without Config.Hello. The slices are the caller's. It blocks on nothing but a short lock.
func (s *Membership) UnknowingMembers() (unheard, older []string) {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	return s.unknowingLocked()
}

// unknowingLocked is UnknowingMembers with versions.mu held.
func (s *Membership) unknowingLocked() (unheard, older []string) {
	if s.config.Hello == nil {
		return nil, nil
	}
	v := &s.versions
	record := s.store.Members()
	told := v.mu.told.members == record.GetVersion() && v.mu.told.commands > 0
	for _, m := range s.versionsOf(record) {
		version, heard := v.mu.heard[m.Replica]
		switch {
		case !heard && !told:
			unheard = append(unheard, m.Address)
		case heard && version.commands < store.NewestFormat:
			older = append(older, m.Address)
		}
	}
	return unheard, older
}
