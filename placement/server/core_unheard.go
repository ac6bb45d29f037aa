package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/store"
)

// UnknowingMembers returns the addresses of the members of the core that keep commands of the
// newest format from being used, as far as this member knows: unheard have not said what their
// versions know, to this member since it was started or to one that has told it, and older have
// said that they do not know all that this version does. Both are empty on a server without
// Config.Hello. The slices are the caller's. It does not block on anything but a short lock.
func (s *Server) UnknowingMembers() (unheard, older []string) {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	return s.unknowingLocked()
}

// unknowingLocked is UnknowingMembers with versions.mu held.
func (s *Server) unknowingLocked() (unheard, older []string) {
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

// measureVersions adds what is to be known of the members' versions. Each member says what it has
// heard itself, whether it leads or not.
func (m *metrics) measureVersions(s *Server) {
	m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_core_members_version_unknown",
		Help: "Members of the core whose versions are not known to this member, because they have " +
			"not answered since it was started. Until they answer, no NOSPACE alarm is raised.",
	}, func() float64 {
		unheard, _ := s.UnknowingMembers()
		return float64(len(unheard))
	}))
}
