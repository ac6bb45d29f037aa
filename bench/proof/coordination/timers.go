package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Timers runs several managers that wait for the ticks of some timers, on machines whose clocks are
// up to hours wrong. At most one manager fires a period, and not before it is due by true time.
// Later periods have higher tokens. Missed periods between two ticks are reported. A timer that
// catches up misses no period, except periods that a manager may have claimed without learning of
// it.
type Timers struct {
	Managers int
	Period   time.Duration
	Pause    time.Duration

	mu struct {
		sync.Mutex
		timers [3]timerHistory // by coord.Missed
	}
}

// timerHistory is what is known of a timer.
type timerHistory struct {
	last coord.Tick
	// untold is the number of claims of unknown outcome.
	untold int
	// count is the number of ticks.
	count int
}

const (
	// mostWrong is the largest error of the clock of a manager's machine.
	mostWrong = 3 * time.Hour
	// early is how long before its time a period may be fired. The clock of the service is the
	// clock of a majority of servers, and these clocks differ from true time by less than early.
	early = time.Second
)

// Name implements Workload.
func (*Timers) Name() string { return "etcd-timers" }

// Clients implements Workload.
func (t *Timers) Clients() int { return t.Managers }

// Setup implements Workload.
func (t *Timers) Setup(ctx context.Context, run *driver.Run) error {
	return available(ctx, run, t.Name())
}

// Drive implements Workload. Each manager waits for the ticks of one timer for a while, and then
// for the ticks of another one.
func (t *Timers) Drive(ctx context.Context, run *driver.Run, number int, _ *driver.Client,
	random *rand.Rand) {
	off := time.Duration(random.Int64N(int64(2*mostWrong))) - mostWrong
	client, err := connect(ctx, run, t.Name(), coord.Wall(func() time.Time {
		return time.Now().Add(off)
	}))
	if err != nil {
		run.Violation("%s: connecting: %v", t.Name(), err)
		return
	}
	defer client.hangUp()
	for run.Rest(ctx, random, t.Pause) {
		missed := coord.Missed(random.IntN(3))
		t.manage(ctx, run, client, missed, random)
	}
}

func (t *Timers) manage(ctx context.Context, run *driver.Run, client connected,
	missed coord.Missed, random *rand.Rand) {
	waiting, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(20))*time.Second)
	defer cancel()
	timer := client.recipes.Timer(fmt.Sprint("timer", missed), t.Period, missed)
	for tick, err := range timer.Ticks(waiting) {
		switch {
		case err == nil:
			run.Count("tick", nil)
			t.fired(run, missed, tick)
			continue
		case errors.Is(err, coord.ErrOutcomeUnknown):
			t.mu.Lock()
			t.mu.timers[missed].untold++
			t.mu.Unlock()
		}
		if waiting.Err() == nil {
			run.Count("tick", plain(err))
		}
	}
}

// fired checks a tick. The ticks of a timer are claimed one after the other, but two managers may
// call fired in another order. So fired checks only what does not depend on the order of its calls.
func (t *Timers) fired(run *driver.Run, missed coord.Missed, tick coord.Tick) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ahead := time.Until(tick.Due); ahead > early {
		run.Violation("%s: the period of %v was fired %v before that", t.Name(), tick.Due, ahead)
	}
	h := &t.mu.timers[missed]
	h.count++
	last := h.last
	if tick.Token < last.Token {
		last, tick = tick, last
	} else {
		h.last = tick
	}
	switch periods := int64(tick.Due.Sub(last.Due) / t.Period); {
	case last.Token == 0:
	case tick.Token == last.Token || !tick.Due.After(last.Due):
		run.Violation("%s: the period of %v was fired with token %d, and that of %v with %d", t.Name(),
			last.Due, last.Token, tick.Due, tick.Token)
	case tick.Missed > periods-1:
		run.Violation("%s: %d periods are said to be missed before %v, and the one of %v was fired",
			t.Name(), tick.Missed, tick.Due, last.Due)
	case tick.Missed < periods-1 && h.untold == 0 && h.last.Token == tick.Token:
		// There may be ticks between the two whose managers have not called fired yet.
		run.Event("%s: of %d periods before %v %d are said to be missed", t.Name(), periods-1, tick.Due,
			tick.Missed)
	}
	if missed == coord.FireEach && tick.Missed > 0 &&
		tick.Due.Sub(last.Due) <= coord.DefaultCatchUp*t.Period {
		run.Violation("%s: a timer that fires each period missed %d before %v", t.Name(), tick.Missed,
			tick.Due)
	}
}

// Check implements Workload.
func (t *Timers) Check(context.Context, *driver.Run, *driver.Client) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for missed := range t.mu.timers {
		if h := &t.mu.timers[missed]; h.count == 0 {
			return fmt.Errorf("timer %d has never fired", missed)
		}
	}
	return nil
}
