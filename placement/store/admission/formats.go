package admission

import (
	"github.com/tidemarkdb/tidemark/placement/store/command"
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

// MembersKnow says up to which format all members are known to know commands. Nothing below
// command.LeastFormat counts. changed: it was another before.
func (g *Gate) MembersKnow(format uint32) (changed bool) {
	format = min(max(format, command.LeastFormat), command.NewestFormat)
	return g.membersKnow.Swap(format) != format
}

// MayUse says whether all members are known to know a format.
func (g *Gate) MayUse(format byte) bool { return uint32(format) <= g.membersKnow.Load() }

// checkFormat refuses commands that a member may not know.
func (g *Gate) checkFormat(c *storepb.Command) error {
	if g.MayUse(command.FormatOf(c)) || c.GetAlarmChange().GetEnd() && len(g.store.Alarms()) > 0 {
		return nil
	}
	return command.ErrOldMembers
}
