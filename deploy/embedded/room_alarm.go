package embedded

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

const (
	// roomLook is how often a member looks whether it has room, roomTimeout bounds the command that
	// tells the others.
	roomLook    = time.Second
	roomTimeout = 5 * time.Second
	// A member raises its alarm when fewer reserves of the disk are free than lowReserves: the last
	// one is for the alarm itself, and for what is deleted. It ends it when more than roomyReserves
	// are. Of a quota, a tenth has to be free again.
	lowReserves, roomyReserves = 2, 3
	// quotaLooks is how often in a row a member sees the quota exceeded before it raises the alarm:
	// what a snapshot replaces is counted for a moment beside what it brings.
	quotaLooks = 3
	// leastStoreBytes is what a store counts for whose tables are all in memory yet.
	leastStoreBytes = 4 << 10
	// refusedAgain is how often the log is told at most that an alarm cannot be raised.
	refusedAgain = 10 * time.Minute
)

// roomAlarm raises and ends the alarm that this member has no room.
type roomAlarm struct {
	server    *Server
	databases *databases
	store     *store.Store
	// unknowing are the members of the core because of which an alarm may not be raised, as
	// server.Server.UnknowingMembers.
	unknowing func() (unheard, older []string)
	// quota is ServerConfig.CoreQuota.
	quota atomic.Int64
	// above is how often in a row the quota was seen to be exceeded, up to quotaLooks. Of watch.
	above int
	// refused is when the log was last told that an alarm cannot be raised; zero: never. Of watch.
	refused time.Time
	// running is watch. end ends it; so does the end of the server's context.
	running sync.WaitGroup
	end     context.CancelFunc
}

// start begins to look. It ends with ctx, or by end.
func (r *roomAlarm) start(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	r.running.Go(func() { r.watch(ctx) })
}

// watch looks again and again. It is one goroutine.
func (r *roomAlarm) watch(running context.Context) {
	for pause(running, roomLook) {
		for _, c := range r.due() {
			ctx, cancel := context.WithTimeout(running, roomTimeout)
			// Without a leader nothing is written. It is tried again.
			_, err := r.store.Execute(ctx, c)
			cancel()
			switch {
			case errors.Is(err, store.ErrOldMembers):
				r.tellRefused()
			case err == nil:
				change := c.GetAlarmChange()
				r.server.config.Logger.Warn("an alarm for want of room has changed", "member",
					change.Alarm.Member, "ended", change.End)
			}
		}
	}
}

// tellRefused tells the log, unless it was told lately, that an alarm is due and cannot be raised:
// this member has no room, and the others go on writing as if it had.
func (r *roomAlarm) tellRefused() {
	now := time.Now()
	if !r.refused.IsZero() && now.Sub(r.refused) < refusedAgain {
		return
	}
	r.refused = now
	// What they know may be another thing than what the leader does, which has refused.
	unheard, older := r.unknowing()
	r.server.config.Logger.Warn("no alarm for want of room can be raised, so writes go on: not all "+
		"members of the core are known to run a version that knows of alarms; make room on this "+
		"member, start or remove those that were not heard, and upgrade the older ones",
		"member", uint64(r.server.directory.identity().Server), "unheard", unheard, "older", older)
}

// due are the commands that are to be done now.
func (r *roomAlarm) due() (commands []*storepb.Command) {
	self := uint64(r.server.directory.identity().Server)
	mine := &storepb.Alarm{Member: self, Type: storepb.Alarm_NO_SPACE, Automatic: true}
	low, roomy := r.room()
	alarms, members := r.store.Alarms(), r.store.Members().GetMembers()
	l, _ := r.store.Leadership()
	raised := false
	for _, a := range alarms {
		is := func(m *storepb.Member) bool { return m.Server == a.Member }
		switch {
		case a.Type != storepb.Alarm_NO_SPACE:
		case a.Member == self:
			raised = true
			if a.Automatic && roomy {
				commands = append(commands, store.EndAlarm(mine))
			}
		case a.Automatic && l.IsLeader && !slices.ContainsFunc(members, is):
			// Its member was removed, and no other member ends it.
			commands = append(commands, store.EndAlarm(a))
		}
	}
	if low && !raised && len(members) > 0 {
		commands = append(commands, store.RaiseAlarm(mine))
	}
	return commands
}

// room looks whether there is little room, or plenty.
func (r *roomAlarm) room() (low, roomy bool) {
	log, state := r.databases.log, r.databases.state
	reserve := int64(log.MinFreeBytes())
	free := int64(min(log.FreeBytes(), state.FreeBytes(), math.MaxInt64))
	left := free - log.UnflushedBytes() - state.UnflushedBytes()
	known := reserve > 0 && free > 0
	full := log.Full() || state.Full()
	low = full || known && left < lowReserves*reserve
	roomy = !full && (!known || left > roomyReserves*reserve)
	if quota := r.quota.Load(); quota > 0 {
		if size, err := r.store.Size(); err == nil {
			size = max(size, leastStoreBytes)
			low = r.exceeds(size > uint64(quota)) || low
			roomy = roomy && size < uint64(quota-quota/10)
		}
	}
	return low, roomy
}

// exceeds says whether the quota counts as exceeded, after one more look.
func (r *roomAlarm) exceeds(over bool) bool {
	if !over {
		r.above = 0
		return false
	}
	r.above = min(r.above+1, quotaLooks)
	return r.above == quotaLooks
}
