package spacealarm

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/engine"
)

const (
	// roomLook is how often a member looks whether it has room, roomTimeout bounds the command that
	// tells the others.
	roomLook    = time.Second
	roomTimeout = 5 * time.Second
	// A member raises its alarm when fewer reserves of the disk are free than lowReserves: the last
	// one is for the alarm itself, and for what is deleted. It ends it when more than roomyReserves
	// are.
	lowReserves, roomyReserves = 2, 3
	// giveBackBytes is how much has to be removed from the store, since it gave its room back last,
	// before it is made to do so again while there is an alarm. giveBackTimeout bounds that.
	// giveBackRest is how long it rests after it, and giveBackAgain if it did not succeed.
	giveBackBytes   = 1 << 20
	giveBackTimeout = 5 * time.Minute
	giveBackRest    = 2 * time.Second
	giveBackAgain   = 15 * time.Second
	// RefusedAgain is how often the log is told at most that an alarm cannot be raised.
	RefusedAgain = 10 * time.Minute
)

// Config is what a spaceAlarm belongs to.
type Config struct {
	// Member is the server's id.
	Member uint64
	Log    *engine.Log
	State  *engine.State
	Store  *store.Store
	// Unknowing are the members of the core because of which an alarm may not be raised, as
	// membership.Membership.UnknowingMembers.
	Unknowing func() (unheard, older []string)
	Logger    *slog.Logger
}

// Alarm raises and ends the alarm that this member has no room. The store raises it as well,
// for its quota, when it refuses a command (store.SetQuota).
//
// While the alarm is there, what clients delete and compact has to come back to the disk without
// more writes, which are refused: the database would keep it until its memory is full. So the
// member has the store give it back (giveBack): once when the alarm is raised, for what was removed
// before, and again when more was removed.
type Alarm struct {
	config Config
	// given is store.Freed when the store began to give back last. Of watch.
	given uint64
	// raised: the last look has found the alarm raised. Of watch.
	raised bool
	// owes: since the alarm was raised the store has not given back, as far as this process knows, or
	// it did not succeed. giving: it gives back, or rests after that.
	owes, giving atomic.Bool
	// refused is when the log was last told that an alarm cannot be raised; zero: never. Of watch.
	refused time.Time
	// running is watch. end ends it; so does the end of the server's context.
	running sync.WaitGroup
	end     context.CancelFunc
}

func New(c Config) *Alarm { return &Alarm{config: c} }

// Start begins to look. It ends with ctx, or by end.
func (r *Alarm) Start(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	r.owes.Store(true) // what an earlier process removed it may not have given back
	r.running.Go(func() { r.watch(ctx) })
}

// Close ends the looking, and waits for it. It is called after start.
func (r *Alarm) Close() {
	r.end()
	r.running.Wait()
}

// watch looks again and again. It is one goroutine.
func (r *Alarm) watch(running context.Context) {
	looks := time.NewTicker(roomLook)
	defer looks.Stop()
	for {
		select {
		case <-running.Done():
			return
		case <-looks.C:
		}
		commands, raised := r.Due()
		if raised {
			r.considerGivingBack(running)
		} else {
			r.owes.Store(true)
			if r.raised {
				r.config.Store.AlarmOver()
			}
		}
		r.raised = raised
		for _, c := range commands {
			ctx, cancel := context.WithTimeout(running, roomTimeout)
			// Without a leader nothing is written. It is tried again.
			_, err := r.config.Store.Execute(ctx, c)
			cancel()
			switch {
			case errors.Is(err, store.ErrOldMembers):
				r.tellRefused()
			case err == nil:
				change := c.GetAlarmChange()
				r.config.Logger.Warn("an alarm for want of room has changed", "member",
					change.Alarm.Member, "ended", change.End)
			}
		}
	}
}

// tellRefused tells the log, unless it was told lately, that an alarm is due and cannot be raised:
// this member has no room, and the others go on writing as if it had.
func (r *Alarm) tellRefused() {
	now := time.Now()
	if !r.refused.IsZero() && now.Sub(r.refused) < RefusedAgain {
		return
	}
	r.refused = now
	// What they know may be another thing than what the leader does, which has refused.
	unheard, older := r.config.Unknowing()
	r.config.Logger.Warn("no alarm for want of room can be raised, so writes go on: not all "+
		"members of the core are known to run a version that knows of alarms; make room on this "+
		"member, start or remove those that were not heard, and upgrade the older ones",
		"member", r.config.Member, "unheard", unheard, "older", older)
}

// considerGivingBack has the store give back what was removed, if there is something. The work runs
// beside the looks: it may wait for the disk.
func (r *Alarm) considerGivingBack(running context.Context) {
	freed := r.config.Store.Freed()
	if !r.owes.Load() && freed-r.given < giveBackBytes || r.giving.Swap(true) {
		return
	}
	// What a compaction removes while this runs is given back by the next time.
	r.given = freed
	r.owes.Store(false)
	r.running.Go(func() {
		defer r.giving.Store(false)
		ctx, cancel := context.WithTimeout(running, giveBackTimeout)
		began := time.Now()
		err := r.GiveBack(ctx)
		cancel()
		if running.Err() != nil {
			return
		}
		log, rest := r.config.Logger.With("seconds", time.Since(began).Seconds()), giveBackRest
		if err != nil {
			log.Warn("what was deleted from the coordination store could not all be given back to the "+
				"disk; it is tried again", "error", err)
			r.owes.Store(true)
			rest = giveBackAgain
		} else {
			log.Info("what was deleted from the coordination store was given back to the disk")
		}
		select {
		case <-running.Done():
		case <-time.After(rest):
		}
	})
}

// GiveBack has the disk take back what was removed from the coordination store and from the Raft
// logs of the core.
func (r *Alarm) GiveBack(ctx context.Context) error {
	// The flush of the state lets the logs be truncated up to it.
	return errors.Join(r.config.Store.GiveBack(ctx), r.config.Log.Reclaim())
}

// Due are the commands that are to be done now, and whether this member's alarm is raised.
func (r *Alarm) Due() (commands []*storepb.Command, raised bool) {
	self := r.config.Member
	mine := &storepb.Alarm{Member: self, Type: storepb.Alarm_NO_SPACE, Automatic: true}
	low, roomy := r.room()
	alarms, members := r.config.Store.Alarms(), r.config.Store.Members().GetMembers()
	l, _ := r.config.Store.Leadership()
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
	return commands, raised
}

// room looks whether there is little room, or plenty.
func (r *Alarm) room() (low, roomy bool) {
	log, state := r.config.Log, r.config.State
	reserve := int64(log.MinFreeBytes())
	free := int64(min(log.FreeBytes(), state.FreeBytes(), math.MaxInt64))
	left := free - log.UnflushedBytes() - state.UnflushedBytes()
	known := reserve > 0 && free > 0
	full := log.Full() || state.Full()
	low = full || known && left < lowReserves*reserve
	roomy = !full && (!known || left > roomyReserves*reserve)
	over, below := r.config.Store.QuotaRoom()
	return low || over, roomy && below
}
