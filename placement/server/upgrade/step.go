package upgrade

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

const (
	// lookAgain is the interval at which the leader looks on its own. raiseAgain is the interval while
	// a level is coming.
	lookAgain  = 10 * time.Second
	raiseAgain = time.Second
)

// Run is the leader's background work. It makes a coming level active, records since when the
// cluster has been ready for the next level, and finalises by the timer. It ends with ctx.
func (u *Upgrade) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l, changed := u.config.Store.Leadership()
		timer.Stop()
		if l.Serving {
			wait, err := u.step(ctx)
			if _, refused, _ := hint.Of(err); err != nil && !refused && ctx.Err() == nil {
				u.config.Logger.Warn("the cluster's level could not be looked at; this is tried again",
					"error", err)
			}
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-u.poked:
		case <-timer.C:
		}
	}
}

// step takes the next step, if there is one, and returns when to look again.
func (u *Upgrade) step(ctx context.Context) (again time.Duration, err error) {
	v, done, err := u.config.Meta.ViewInTurn(ctx)
	if err != nil {
		return raiseAgain, err
	}
	defer done()
	record, err := Load(v)
	if err != nil {
		return raiseAgain, err
	}
	servers, err := u.servers(v)
	if err != nil {
		return raiseAgain, err
	}
	l, _ := u.config.Store.Leadership()
	now := time.Now()
	next, why, outcome := record.decide(servers, u.heardFor(l.Term), now)
	again = record.lookAgain(now)
	if next == nil {
		return again, nil
	}
	if _, err = u.commit(ctx, v, record, next, why, outcome); err != nil {
		return raiseAgain, err
	}
	u.notify(servers)
	return raiseAgain, nil
}

// decide returns the next state of the record, with texts that give the reason and the meaning. It
// returns nil if the record stays as it is. heard is the time for which the leader has received
// reports.
func (r Record) decide(
	servers []server, heard time.Duration, now time.Time,
) (next *serverpb.Level, why, outcome string) {
	next = r.next()
	if noted, active := highest(servers); active > r.active() ||
		noted > r.coming() && r.coming() == r.active() {
		// The core continues from a member that lacks the last changes. The record is raised by one level
		// at a time.
		next.Coming = uint32(r.active() + 1)
		if active > r.active() {
			next.Active, next.ReadyLevel, next.ReadySinceUnixMs = next.Coming, 0, 0
		}
		return next, "a server has noted it, and the core has lost that", fmt.Sprintf(
			"level %d is active, and level %d is coming", next.Active, next.Coming)
	}
	if heard < hearing {
		return nil, "", "" // not all servers have reported yet
	}
	target, obstacles := r.assess(servers)
	switch {
	case r.coming() > r.active():
		if target < r.coming() || obstacles > 0 || r.unnoted(servers) > 0 {
			return nil, "", ""
		}
		next.Active, next.ReadyLevel, next.ReadySinceUnixMs = uint32(r.coming()), 0, 0
		return next, "every server has noted it", r.coming().String() + " is active"
	case target > r.active() && obstacles == 0:
		if release.Level(r.GetReadyLevel()) != target || r.GetReadySinceUnixMs() == 0 {
			next.ReadyLevel, next.ReadySinceUnixMs = uint32(target), now.UnixMilli()
			return next, "every server supports it", "the upgrade to " + target.String() +
				" can be finalised"
		}
		if due, set := r.due(); set && !now.Before(due) {
			next.Coming = uint32(target)
			return next, "the timer has run out", "servers note " + target.String()
		}
	case r.GetReadySinceUnixMs() != 0:
		next.ReadyLevel, next.ReadySinceUnixMs = 0, 0
		return next, "not every server supports the next level",
			"an upgrade cannot be finalised at present"
	}
	return nil, "", ""
}

// highest returns the highest level that a server has recorded, and the highest level that a server
// uses.
func highest(servers []server) (noted, active release.Level) {
	for _, s := range servers {
		noted = max(noted, release.Level(s.Levels.GetNoted()))
		active = max(active, release.Level(s.Levels.GetActive()))
	}
	return noted, active
}

// due returns the time at which the timer runs out. set is false if the timer is not set.
func (r Record) due() (due time.Time, set bool) {
	after := time.Duration(r.GetAutoAfterMillis()) * time.Millisecond
	if after == 0 || r.GetReadySinceUnixMs() == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(r.GetReadySinceUnixMs()).Add(after), true
}

// lookAgain returns when the leader looks again on its own.
func (r Record) lookAgain(now time.Time) time.Duration {
	if r.coming() > r.active() {
		return raiseAgain
	}
	if due, set := r.due(); set {
		return min(lookAgain, max(raiseAgain, due.Sub(now)))
	}
	return lookAgain
}
