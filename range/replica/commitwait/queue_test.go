package commitwait

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/timer"
)

type answer struct{ released, refused int }

func (a *answer) Release() { a.released++ }
func (a *answer) Refuse()  { a.refused++ }

// timers ring when the test says so.
type timers struct {
	ring  []func()
	after []time.Duration
}

type setTimer struct {
	of *timers
	at int
}

func (t setTimer) Stop() bool { return true }

func (t setTimer) Reset(d time.Duration) bool {
	t.of.after[t.at] = d
	return true
}

func (t *timers) afterFunc(d time.Duration, f func()) timer.Timer {
	t.ring, t.after = append(t.ring, f), append(t.after, d)
	return setTimer{t, len(t.ring) - 1}
}

// TestQueue: what is held back is released once, and not before every clock has passed its
// timestamp, however early its timer rings; a closed queue refuses what it has, and what comes.
func TestQueue(t *testing.T) {
	physical := hlc.NewManual(int64(time.Hour))
	var rings timers
	var q Queue
	q.Init(&Clocks{Clock: hlc.NewClock(physical, nil), AfterFunc: rings.afterFunc,
		Seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds"})}, 2, nil)
	until := hlc.Timestamp{Wall: physical.Now()}
	var first, second, third answer
	if !q.Hold(until, &first) || !q.Hold(until.Add(time.Hour), &second) || q.Hold(until, &third) {
		t.Fatal("a queue for two does not hold two")
	}
	rings.after[0] = 0
	rings.ring[0]()
	if first.released != 0 || rings.after[0] < shortest {
		t.Fatalf("released %d times before all clocks have passed; its timer rings in %s",
			first.released, rings.after[0])
	}
	physical.Advance(2 * hlc.DefaultMaxOffset)
	rings.ring[0]()
	rings.ring[0]()
	if first != (answer{released: 1}) || q.Len() != 1 {
		t.Fatalf("%+v, and %d are held", first, q.Len())
	}
	q.Close()
	rings.ring[1]()
	if second != (answer{refused: 1}) || q.Hold(until, &third) || third != (answer{}) || q.Len() != 0 {
		t.Fatalf("the closed queue has %d, refused %+v", q.Len(), second)
	}
}
