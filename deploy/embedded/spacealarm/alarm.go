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
	// roomLook is the interval at which a member checks its free disk space. roomTimeout limits the
	// command that informs the others.
	roomLook    = time.Second
	roomTimeout = 5 * time.Second
	// A reserve is an amount of free disk space. A member raises its alarm when the free space is less
	// than lowReserves reserves. The last reserve is for the alarm itself, and for deletions. The
	// member ends its alarm when the free space is more than roomyReserves reserves.
	lowReserves, roomyReserves = 2, 3
	// While there is an alarm, the store gives back disk space after at least giveBackBytes were
	// removed from it since the last time. giveBackTimeout limits one such attempt. The pause after an
	// attempt is giveBackRest, or giveBackAgain if the attempt failed.
	giveBackBytes   = 1 << 20
	giveBackTimeout = 5 * time.Minute
	giveBackRest    = 2 * time.Second
	giveBackAgain   = 15 * time.Second
	// RefusedAgain is the shortest interval between two log messages which say that an alarm cannot be
	// raised.
	RefusedAgain = 10 * time.Minute
)

// Config configures an Alarm.
type Config struct {
	// Member is the server's id.
	Member uint64
	Log    *engine.Log
	State  *engine.State
	Store  *store.Store
	// Unknowing returns the members of the core because of which an alarm may not be raised, as
	// versions.Versions.Unknowing does.
	Unknowing func() (unheard, older []string)
	Logger    *slog.Logger
}

// Alarm raises and ends the alarm that this member has no disk space. The store also raises the
// alarm, for its quota, when it refuses a command (store.SetQuota).
//
// While the alarm is raised, writes are refused. The space of keys that clients delete or compact
// must then return to the disk without further writes, because the database would otherwise keep it
// until its memory is full. So the member makes the store give the space back (giveBack): once when
// the alarm is raised, for keys that were removed before, and again when more was removed.
type Alarm struct {
	config Config
	// given is the value of store.Freed when the store last began to give space back. Only watch uses
	// it.
	given uint64
	// raised: the last check found the alarm raised. Only watch uses it.
	raised bool
	// owes: the store has not given space back since the alarm was raised, as far as this process
	// knows, or the attempt failed. giving: an attempt is under way, or the pause after it.
	owes, giving atomic.Bool
	// refused is the time of the last log message that an alarm cannot be raised. It is zero if there
	// was none. Only watch uses it.
	refused time.Time
	// running counts the goroutine of watch. end ends it. The end of the server's context ends it too.
	running sync.WaitGroup
	end     context.CancelFunc
}

func New(c Config) *Alarm { return &Alarm{config: c} }

// Start starts the checks. They end with ctx, or with Close.
func (r *Alarm) Start(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	r.owes.Store(true) // an earlier process may not have given back what it removed
	r.running.Go(func() { r.watch(ctx) })
}

// Close ends the checks, and waits for their end. It must be called after Start.
func (r *Alarm) Close() {
	r.end()
	r.running.Wait()
}

// watch is the goroutine that checks repeatedly.
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
			// Without a leader nothing is written. The next check tries again.
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

// tellRefused logs, unless it has done so recently, that an alarm is due and cannot be raised: this
// member has no disk space, and the others continue to write as if it had.
func (r *Alarm) tellRefused() {
	now := time.Now()
	if !r.refused.IsZero() && now.Sub(r.refused) < RefusedAgain {
		return
	}
	r.refused = now
	// This member's knowledge of versions may differ from that of the leader, which has refused.
	unheard, older := r.config.Unknowing()
	r.config.Logger.Warn("no alarm for want of room can be raised, so writes go on: not all "+
		"members of the core are known to run a version that knows of alarms; make room on this "+
		"member, start or remove those that were not heard, and upgrade the older ones",
		"member", r.config.Member, "unheard", unheard, "older", older)
}

// considerGivingBack makes the store give space back, if something was removed. The work runs in
// its own goroutine, because it may wait for the disk.
func (r *Alarm) considerGivingBack(running context.Context) {
	freed := r.config.Store.Freed()
	if !r.owes.Load() && freed-r.given < giveBackBytes || r.giving.Swap(true) {
		return
	}
	// The space of keys that a compaction removes during this attempt is given back by the next one.
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

// GiveBack returns the space of removed data to the disk, of the coordination store and of the
// core's Raft logs.
func (r *Alarm) GiveBack(ctx context.Context) error {
	// The flush of the state allows the logs to be truncated up to the flushed index.
	return errors.Join(r.config.Store.GiveBack(ctx), r.config.Log.Reclaim())
}

// Due returns the commands that must be executed now, and whether this member's alarm is raised.
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
			// The member of this alarm was removed, and no other member ends the alarm.
			commands = append(commands, store.EndAlarm(a))
		}
	}
	if low && !raised && len(members) > 0 {
		commands = append(commands, store.RaiseAlarm(mine))
	}
	return commands, raised
}

// room reports whether there is little free space, or plenty.
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
