package load

import (
	"math"
	"time"
)

// The times over which figures are averaged.
const (
	// Minute is the time constant of the shorter average: older figures count for less than a
	// third.
	Minute = time.Minute
	// FiveMinutes is the same for the longer one.
	FiveMinutes = 5 * time.Minute
	// Window is a period that is judged by itself.
	Window = 20 * time.Second
	// Sustained is how many windows a load must last to count as sustained; PeakFor is how long a
	// peak is remembered.
	Sustained = 3
	PeakFor   = 10 * time.Minute
)

// Totals are a replica's counts since it was opened.
type Totals struct {
	// Led is the time spent on requests, on a leader only. Applied is the time spent on entries, on
	// every replica.
	Led, Applied time.Duration
	// Reads and Writes count requests; ReadBytes counts the bytes that reads returned, WrittenBytes
	// those in entries.
	Reads, Writes, ReadBytes, WrittenBytes uint64
}

// Rates are totals divided by time: processors, and numbers per second.
type Rates struct {
	Led, Applied                           float64
	Reads, Writes, ReadBytes, WrittenBytes float64
}

// Load returns the cost of the partition for its leader, in processors.
func (r *Rates) Load() float64 { return r.Led + r.Applied }

// rates returns the growth of totals per time.
func rates(from, to *Totals, passed time.Duration) Rates {
	s := passed.Seconds()
	number := func(from, to uint64) float64 { return float64(to-from) / s }
	return Rates{Led: (to.Led - from.Led).Seconds() / s,
		Applied: (to.Applied - from.Applied).Seconds() / s,
		Reads:   number(from.Reads, to.Reads), Writes: number(from.Writes, to.Writes),
		ReadBytes:    number(from.ReadBytes, to.ReadBytes),
		WrittenBytes: number(from.WrittenBytes, to.WrittenBytes)}
}

// move moves an average a part of the way to the present rates.
func (r *Rates) move(to *Rates, part float64) {
	for _, f := range [...]struct {
		at *float64
		to float64
	}{{&r.Led, to.Led}, {&r.Applied, to.Applied}, {&r.Reads, to.Reads}, {&r.Writes, to.Writes},
		{&r.ReadBytes, to.ReadBytes}, {&r.WrittenBytes, to.WrittenBytes}} {
		*f.at += part * (f.to - *f.at)
	}
}

// Averages follows the totals of one replica. The zero value is ready. It is for one goroutine.
type Averages struct {
	// since is when the measurement began; zero: it has not.
	since, at time.Time
	last      Totals
	// Minute and Five are the two averages.
	Minute, Five Rates

	// windowAt is when the present window began, and window the totals at that time.
	windowAt time.Time
	window   Totals
	// lasts holds the loads of the last windows, the newest first; ended counts the windows that
	// have ended.
	lasts [Sustained]float64
	ended int
	// peaks holds the highest load of a window in each of the last minutes.
	peaks  [PeakFor/time.Minute + 1]float64
	minute int64
}

// Reset begins a new measurement.
func (a *Averages) Reset(now time.Time, t Totals) {
	*a = Averages{since: now, at: now, last: t, windowAt: now, window: t, minute: minuteOf(now)}
}

// Started reports whether Reset was called.
func (a *Averages) Started() bool { return !a.since.IsZero() }

// Measured returns how long the measurement has lasted.
func (a *Averages) Measured(now time.Time) time.Duration {
	if !a.Started() {
		return 0
	}
	return now.Sub(a.since)
}

// Add takes the present totals. It does nothing if no time has passed.
func (a *Averages) Add(now time.Time, t Totals) {
	passed := now.Sub(a.at)
	if !a.Started() || passed <= 0 {
		return
	}
	r := rates(&a.last, &t, passed)
	a.Minute.move(&r, a.weight(now, passed, Minute))
	a.Five.move(&r, a.weight(now, passed, FiveMinutes))
	a.at, a.last = now, t
	if in := now.Sub(a.windowAt); in >= Window {
		r = rates(&a.window, &t, in)
		copy(a.lasts[1:], a.lasts[:])
		a.lasts[0] = r.Load()
		a.ended++
		a.windowAt, a.window = now, t
		a.peak(now, r.Load())
	} else {
		a.peak(now, 0)
	}
}

// weight returns the part of an average that the time since the last sample makes up. The first
// minutes are averaged evenly.
func (a *Averages) weight(now time.Time, passed, over time.Duration) float64 {
	w := 1 - math.Exp(-float64(passed)/float64(over))
	if age := now.Sub(a.since); age < over {
		w = max(w, float64(passed)/float64(age))
	}
	return w
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// peak records a load, and forgets old peaks.
func (a *Averages) peak(now time.Time, load float64) {
	n := int64(len(a.peaks))
	to := minuteOf(now)
	for m := max(a.minute+1, to-n+1); m <= to; m++ {
		a.peaks[m%n] = 0
	}
	a.minute = max(a.minute, to)
	a.peaks[to%n] = max(a.peaks[to%n], load)
}

// Sustained returns the least load of the last windows; 0 before there were enough.
func (a *Averages) Sustained() float64 {
	if a.ended < Sustained {
		return 0
	}
	least := a.lasts[0]
	for _, l := range a.lasts[1:] {
		least = min(least, l)
	}
	return least
}

// Peak returns the highest load of a window in the last ten minutes, or since the measurement
// began.
func (a *Averages) Peak() float64 {
	most := 0.0
	for _, p := range a.peaks {
		most = max(most, p)
	}
	return most
}
