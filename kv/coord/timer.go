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

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// Missed says how a Timer treats periods in which it did not fire, because no manager ran or
// reached the service.
type Missed uint8

const (
	// SkipMissed skips missed periods. A period is fired only by a manager that ran when the period
	// was due.
	SkipMissed Missed = iota
	// FireOnce fires once for all missed periods, as soon as a manager runs: it fires the last of
	// them.
	FireOnce
	// FireEach fires once for each missed period, one after the other.
	FireEach
)

const (
	// MinPeriod is the shortest period of a Timer.
	MinPeriod = 100 * time.Millisecond
	// DefaultCatchUp is the default of CatchUp.
	DefaultCatchUp = 100

	// lookAgain is the interval at which a waiting manager checks the clock and the last claim.
	lookAgain = time.Minute
	// mostAhead is how far a claim may be ahead of the service's clock. If a period is longer, the
	// limit is one period. During that time nothing fires, and no period fires twice.
	mostAhead = 5 * time.Second
)

// Timer fires once in every period, in one of many managers. Each manager runs a loop over Ticks.
// Periods are counted from 1970-01-01 00:00 UTC: a period of an hour begins on the hour, a period
// of a day at midnight UTC.
//
// A key of the service has the last fired period. When a period is due, a manager claims it: the
// manager replaces the key, if the key has not changed since it was read. So at most one manager
// fires a period, and while managers run, one of them fires it as soon as it is due. If a manager
// fails after its claim, before or during its work, the period is not fired again. If the work must
// be done, put it into a Queue when the timer fires.
//
// The service's clock, which follows the clocks of a majority of its members, decides which period
// is due. The clock of a manager's machine does not matter. A claim that is ahead of the service's
// clock by more than a period and five seconds is void. The first manager that sees such a claim
// resets it. The later periods are fired when they are due, including periods that were fired too
// early. Only a manager of an earlier version makes such a claim, or a manager of a service with a
// wrong clock. etcd and earlier versions of Tidemark do not provide the time. There each manager
// uses the clock of its own machine. A claim far ahead is then reported (ErrClockAhead) and stays.
type Timer struct {
	client  *Client
	name    string
	period  time.Duration
	missed  Missed
	catchUp int
	// now returns the time, carry extrapolates a reading, and wait waits for a duration.
	now   func(context.Context) (moment, error)
	carry func(moment) moment
	wait  func(context.Context, time.Duration) error
}

// TimerOption is an option of Client.Timer: CatchUp.
type TimerOption func(*Timer)

// CatchUp sets the maximum number of missed periods that a timer with FireEach fires. It fires the
// last ones, and Tick.Missed counts the others. The default is DefaultCatchUp.
func CatchUp(periods int) TimerOption { return func(t *Timer) { t.catchUp = periods } }

// Timer returns the timer with a name. All managers should use the same period. If the period is
// changed, the next period begins at a multiple of the new one.
func (c *Client) Timer(name string, period time.Duration, missed Missed,
	options ...TimerOption) *Timer {
	t := &Timer{client: c, name: name, period: period, missed: missed, catchUp: DefaultCatchUp,
		now: c.now, carry: c.carry, wait: sleep}
	for _, o := range options {
		o(t)
	}
	return t
}

// Tick is a period that this manager has to fire, and no other manager fires.
type Tick struct {
	// Due is the time at which the period was due.
	Due time.Time
	// Missed is the number of earlier periods that were not fired and never will be, according to the
	// service.
	Missed int64
	// Token is higher than the tokens of all earlier ticks. It can be used with Fence.
	Token Token
}

func (t *Timer) key() string { return t.client.path("timer", t.name) + "last" }

// Ticks yields the periods that this manager has claimed, each when it is due. After an error of
// the kind ErrOutcomeUnknown it is unknown whether this manager or another one has claimed a
// period. That period is not yielded here, and may not be fired at all. ErrClockAhead reports a
// claim of a period that is far from due. See Timer for the consequences. After either error the
// loop may continue. The iteration ends with ctx, and after an error by which the service refuses
// the timer.
func (t *Timer) Ticks(ctx context.Context) iter.Seq2[Tick, error] {
	const op = "wait for a tick"
	return func(yield func(Tick, error) bool) {
		now, err := t.begin(ctx)
		if err != nil {
			yield(Tick{}, fail(op, t.name, err))
			return
		}
		m := manager{timer: t, first: t.floor(now.earliest) + int64(t.period)}
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

// begin refuses an invalid timer, and returns the time at which the loop begins.
func (t *Timer) begin(ctx context.Context) (moment, error) {
	const op = "wait for a tick"
	switch {
	case t.name == "":
		return moment{}, checkName(op, t.name)
	case t.period < MinPeriod || t.missed > FireEach:
		return moment{}, invalid(op, t.name, fmt.Sprintf("a period of %s: give %s or more", t.period,
			MinPeriod))
	case t.catchUp < 1:
		return moment{}, invalid(op, t.name, fmt.Sprintf("catching up with %d periods: give 1 or more",
			t.catchUp))
	}
	return t.now(ctx)
}

// floor returns the beginning of the period that contains the time at.
func (t *Timer) floor(at int64) int64 { return at - at%int64(t.period) }

// manager is one loop over the ticks of a timer.
type manager struct {
	timer *Timer
	// first is the first due time after the loop began.
	first int64
	// warned is the last reported claim that is far ahead.
	warned int64
}

// next waits until this manager has claimed a period. more reports whether the manager can continue
// after an error.
func (m *manager) next(ctx context.Context) (tick Tick, more bool, err error) {
	t := m.timer
	for {
		last, modified, err := t.last(ctx)
		if err != nil {
			return Tick{}, false, err
		}
		now, err := t.now(ctx)
		if err != nil {
			return Tick{}, false, err
		}
		if t.farAhead(last, now) && !now.own {
			// An extrapolated reading may be wrong after a stop of the whole machine, which no clock shows.
			// So the next, fresh reading judges the claim.
			t.client.time.forget()
			if now, err = t.now(ctx); err != nil {
				return Tick{}, false, err
			}
		}
		if t.farAhead(last, now) {
			told, err := m.ahead(ctx, last, modified, now)
			if told || err != nil {
				return Tick{}, told, err
			}
			continue
		}
		due := m.due(last, now.earliest)
		if due == 0 {
			if err := t.pause(ctx, t.floor(max(now.earliest, last))+int64(t.period), now); err != nil {
				return Tick{}, false, err
			}
			continue
		}
		nonce := t.client.nonce()
		done, err := t.client.swapOne(ctx, t.key(), modified, func() string {
			// The claim may take so long that the next period is due.
			return claimOf(max(due, m.due(last, t.carry(now).earliest)), nonce)
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

// farAhead reports whether a claim is further ahead of a time than managers ever claim.
func (t *Timer) farAhead(last int64, now moment) bool {
	return last-now.latest > int64(max(t.period, mostAhead))
}

// last returns the last claimed period and the revision of the key. The period is 0 if no period
// was claimed.
func (t *Timer) last(ctx context.Context) (due, modified int64, err error) {
	r, err := t.client.get(ctx, t.key())
	if err != nil || len(r.Kvs) == 0 {
		return 0, 0, err
	}
	due, err = dueOf(r.Kvs[0])
	return due, r.Kvs[0].ModRevision, err
}

// ahead handles a claim that is far ahead. If the service provides the time, the claim is reset:
// the present period then counts as the last one fired, whether it was fired or not. told reports
// whether the caller should see the error and can continue.
func (m *manager) ahead(ctx context.Context, last, modified int64, now moment) (told bool,
	err error) {
	t := m.timer
	if now.own {
		if m.warned != last {
			m.warned = last
			return true, because(fmt.Sprintf("a manager has claimed the period of %s, which by this "+
				"machine's clock is %s ahead; set the clocks right", at(last),
				time.Duration(last-now.latest)), ErrClockAhead)
		}
		return false, t.pause(ctx, t.floor(now.earliest)+int64(t.period), now)
	}
	// Several managers may write this. It does not matter whose write succeeds.
	present := t.floor(now.earliest)
	done, err := t.client.swap(ctx, t.key(), modified, claimOf(present, t.client.nonce()))
	switch {
	case err != nil && !errors.Is(err, ErrOutcomeUnknown), ctx.Err() != nil:
		return false, err
	case err != nil || !done.done:
		return false, nil // the next read shows the result
	}
	return true, because(fmt.Sprintf("the period of %s was claimed, which by the service's clock is "+
		"%s ahead; the claim is void, and the next period is that of %s", at(last),
		time.Duration(last-now.latest), at(present+int64(t.period))), ErrClockAhead)
}

// due returns the time of the period to be claimed now, given that the period at last was the last
// claimed one. It returns 0 if there is none.
func (m *manager) due(last, now int64) int64 {
	t := m.timer
	newest := t.floor(now)
	switch {
	case newest <= last:
		return 0
	case last == 0 || t.missed == SkipMissed:
		if newest < m.first {
			return 0
		}
	case t.missed == FireEach:
		earlier := min((newest-t.floor(last))/int64(t.period), int64(t.catchUp)) - 1
		return newest - earlier*int64(t.period)
	}
	return newest
}

func at(unixNano int64) time.Time { return time.Unix(0, unixNano).UTC() }

// dueOf returns the last claimed period.
func dueOf(kv *mvccpb.KeyValue) (int64, error) {
	number, _, _ := strings.Cut(string(kv.Value), " ")
	due, err := strconv.ParseInt(number, 10, 64)
	if err != nil || due < 0 {
		return 0, because(fmt.Sprintf("the key %s holds %q, which is no time; somebody else wrote it",
			kv.Key, kv.Value), ErrInvalidArgument)
	}
	return due, nil
}

// pause waits until the clock shows a time, but no longer than lookAgain.
func (t *Timer) pause(ctx context.Context, end int64, now moment) error {
	return t.wait(ctx, min(time.Duration(end-now.earliest), lookAgain))
}

// claimOf returns the value of the key for a claim of a period.
func claimOf(due int64, nonce string) string { return strconv.FormatInt(due, 10) + " " + nonce }

// sleep waits for a duration. If the context ends first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	if backoff.Sleep(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return nil
}
