package admission

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Which formats of commands may be used. A member stops at a command of a format that it does not
// know, so the leader proposes a format only if all members are known to know it, and if the gate
// of the format is open: the upgrade was finalised, so no member goes back to an earlier version.
// Members exchange the formats that they know outside the store, and the result is passed to
// MembersKnow. Until all members know the newest format and its gate is open, the Gate restricts
// commands:
//
//   - compactions remove whole revisions (package compaction);
//   - alarms are neither raised nor ended, and an import does not enable authentication.
//
// An alarm, or the rest of a compaction, comes from the log, which all members apply. So an
// existing alarm can be ended, and an existing rest be removed, whatever format MembersKnow was
// given.

// MembersKnow sets the newest format of commands that all members are known to know. A format below
// command.LeastFormat counts as LeastFormat. changed is set if the format was another before.
func (g *Gate) MembersKnow(format uint32) (changed bool) {
	format = min(max(format, command.LeastFormat), command.NewestFormat)
	return g.membersKnow.Swap(format) != format
}

// FollowLevel sets the active level of the cluster, before the Gate is used. Without it every gate
// is open.
func (g *Gate) FollowLevel(level *release.Active) { g.level = level }

// MayUse reports whether all members are known to know a format, and its gate is open.
func (g *Gate) MayUse(format byte) bool {
	return uint32(format) <= g.membersKnow.Load() && g.open(format)
}

func (g *Gate) open(format byte) bool {
	gate, gated := command.GateOf(format)
	return !gated || g.level.Allows(gate)
}

// checkFormat refuses commands that a member may not know.
func (g *Gate) checkFormat(c *storepb.Command) error {
	format := command.FormatOf(c)
	if g.MayUse(format) || c.GetAlarmChange().GetEnd() && len(g.store.Alarms()) > 0 {
		return nil
	}
	if !g.open(format) {
		return fmt.Errorf("%w; then run `tidemark upgrade finalize`: the cluster is at %s",
			command.ErrOldMembers, g.level.Level())
	}
	return command.ErrOldMembers
}
