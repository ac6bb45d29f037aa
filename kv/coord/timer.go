package coord

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Missed is what a Timer does about periods in which it did not fire, because no manager ran or
// none reached the service.
type Missed uint8

const (
	// SkipMissed leaves them out. A period is fired only by a manager that ran when it was due.
	SkipMissed Missed = iota
	// FireOnce fires once for all of them, as soon as a manager runs: for the last of them.
	FireOnce
	// FireEach fires once for each of them, one after the other.
	FireEach
)

const (
	// MinPeriod is the shortest period of a Timer.
	MinPeriod = 100 * time.Millisecond

	// watchClock is how often a manager looks at the wall clock, which may be set, while it waits.
	watchClock = 10 * time.Second
)

// Timer fires once in every period in one of many managers: in each of them runs a loop over Ticks.
// Periods are counted from 1970-01-01 00:00 UTC: one of an hour fires on the hour, one of a day at
// midnight UTC.
//
// One key of the service holds the period that was fired last. When a period is due by the wall
// clock of a manager, it claims the period: it replaces the key, if that is still what it has read.
// So at most one manager fires a period, whatever the clocks show, and if managers run one does as
// soon as its clock says so. A manager that dies after its claim, before or while it does its work,
// leaves that undone: it is not fired again. Work that must be done has to be put in a Queue when
// the timer fires.
type Timer struct {
	client *Client
	name   string
	period time.Duration
	missed Missed
	// now is the wall clock, and wait waits for as long as that.
	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// Timer is the timer of a name. All managers should give the same period; if it is changed, the
// next period begins at a multiple of the new one.
func (c *Client) Timer(name string, period time.Duration, missed Missed) *Timer {
	return &Timer{client: c, name: name, period: period, missed: missed, now: time.Now,
		wait: sleep}
}

// Tick is a period that this manager has to fire, and no other does.
type Tick struct {
	// Due is when it was due.
	Due time.Time
	// Missed is how many periods before it were not fired, and will not be, as far as the service
	// knows.
	Missed int64
	// Token is higher than those of all ticks before. Fence takes it.
	Token Token
}

func (t *Timer) key() string { return t.client.path("timer", t.name) + "last" }

// Ticks yields the periods that this manager has claimed, each when it is due. An error with
// ErrOutcomeUnknown says that it could not be told whether this manager has claimed a period, or
// another one: it is not yielded here, and may not be fired at all. One with ErrClockAhead says
// that a manager with a fast clock has claimed a period that by this one's clock is far from due;
// until then nothing fires. After either of them the iteration goes on if the loop does. It ends
// with ctx, and if the service refuses, after the error.
func (t *Timer) Ticks(ctx context.Context) iter.Seq2[Tick, error] {
	const op = "wait for a tick"
	return func(yield func(Tick, error) bool) {
		err := checkName(op, t.name)
		if err == nil && (t.period < MinPeriod || t.missed > FireEach) {
			err = invalid(op, t.name, fmt.Sprintf("a period of %s: give %s or more", t.period, MinPeriod))
		}
		if err != nil {
			yield(Tick{}, err)
			return
		}
		m := manager{timer: t, first: t.floor(t.now().UnixNano()) + int64(t.period)}
		for {
			tick, more, err := m.next(ctx)
			switch {
			case err != nil:
				if !yield(Tick{}, fail(op, t.name, err)) || !more {
					return
				}
			case !yield(tick, nil):
				return
			}
		}
	}
}

// floor is when the period began that a moment lies in.
func (t *Timer) floor(at int64) int64 { return at - at%int64(t.period) }

// manager is one loop over the ticks of a timer.
type manager struct {
	timer *Timer
	// first is the first due time after the loop began.
	first int64
	// warned is which claim of a fast clock was told.
	warned int64
}

// next waits until this manager has claimed a period. more is whether it can go on after an error.
func (m *manager) next(ctx context.Context) (tick Tick, more bool, err error) {
	t := m.timer
	for {
		r, err := t.client.get(ctx, t.key())
		if err != nil {
			return Tick{}, false, err
		}
		last, modified := int64(0), int64(0)
		if len(r.Kvs) > 0 {
			modified = r.Kvs[0].ModRevision
			if last, err = dueOf(r.Kvs[0]); err != nil {
				return Tick{}, false, err
			}
		}
		now := t.now().UnixNano()
		if ahead := time.Duration(last - now); ahead > max(t.period, time.Second) && m.warned != last {
			m.warned = last
			return Tick{}, true, because(fmt.Sprintf("a manager has claimed the period of %s, which by "+
				"this machine's clock is %s ahead; set the clocks right", at(last), ahead), ErrClockAhead)
		}
		due := m.due(last)
		if due == 0 {
			if err := t.until(ctx, t.floor(max(now, last))+int64(t.period)); err != nil {
				return Tick{}, false, err
			}
			continue
		}
		nonce := t.client.nonce()
		done, err := t.client.swapOne(ctx, t.key(), modified, func() string {
			// It may take so long that another one is due.
			return strconv.FormatInt(max(due, m.due(last)), 10) + " " + nonce
		})
		if err != nil {
			return Tick{}, ctx.Err() == nil && errors.Is(err, ErrOutcomeUnknown), err
		}
		if !done.done {
			continue
		}
		claimed, err := dueOf(&mvccpb.KeyValue{Value: []byte(done.value)})
		if err != nil {
			return Tick{}, false, err
		}
		tick := Tick{Due: at(claimed), Token: Token(done.revision)}
		if last > 0 {
			tick.Missed = max(0, (claimed-t.floor(last))/int64(t.period)-1)
		}
		return tick, true, nil
	}
}

// due is when the period was due that is to be claimed now, if the one at last was claimed before;
// 0 if there is none.
func (m *manager) due(last int64) int64 {
	t := m.timer
	newest := t.floor(t.now().UnixNano())
	switch {
	case newest <= last:
		return 0
	case last == 0 || t.missed == SkipMissed:
		if newest < m.first {
			return 0
		}
	case t.missed == FireEach:
		return t.floor(last) + int64(t.period)
	}
	return newest
}

func at(unixNano int64) time.Time { return time.Unix(0, unixNano).UTC() }

// dueOf is the period that was claimed last.
func dueOf(kv *mvccpb.KeyValue) (int64, error) {
	number, _, _ := strings.Cut(string(kv.Value), " ")
	due, err := strconv.ParseInt(number, 10, 64)
	if err != nil || due < 0 {
		return 0, because(fmt.Sprintf("the key %s holds %q, which is no time; somebody else wrote it",
			kv.Key, kv.Value), ErrInvalidArgument)
	}
	return due, nil
}

// until waits until the wall clock shows a time.
func (t *Timer) until(ctx context.Context, end int64) error {
	for {
		left := time.Duration(end - t.now().UnixNano())
		if left <= 0 {
			return context.Cause(ctx)
		}
		if err := t.wait(ctx, min(left, watchClock)); err != nil {
			return err
		}
	}
}

// sleep waits for as long as that.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
