package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Which formats of commands may be used. A member stops at a command of a format that it does not
// know, so the leader proposes a format only if all members are known to know it. Members tell one
// another what they know outside of the store, which learns it by MembersKnow: so a command costs
// no question. What is refused, or done in an older way, until then:
//
//   - compactions remove whole revisions (compactionStep);
//   - alarms are neither raised nor ended, and an import does not enable authentication.
//
// What is in the state already came by the log, and every member that has the state knows it: what
// a compaction has left is removed, and an alarm that is there can be ended.

const (
	// NewestFormat is the highest format of commands that this version knows.
	NewestFormat = newestFormat
	// LeastFormat is the highest format that every version knows whose members can be in one core
	// with those of this version.
	LeastFormat = importFormat
)

// MembersKnow says up to which format all members are known to know commands. Nothing below
// LeastFormat counts.
func (s *Store) MembersKnow(format uint32) {
	format = min(max(format, LeastFormat), NewestFormat)
	if s.membersKnow.Swap(format) != format {
		s.pokeCompactor()
	}
}

// mayUse says whether all members are known to know a format.
func (s *Store) mayUse(format byte) bool { return uint32(format) <= s.membersKnow.Load() }

// checkFormat refuses commands that a member may not know.
func (s *Store) checkFormat(c *storepb.Command) error {
	if s.mayUse(formatOf(c)) || c.GetAlarmChange().GetEnd() && len(s.Alarms()) > 0 {
		return nil
	}
	return ErrOldMembers
}
