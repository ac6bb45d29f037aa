package sim

import (
	"fmt"
	"time"
)

// maxClock is the largest offset of a clock from true time. The difference of two clocks stays
// within the configured bound of 250 ms.
const maxClock = 120 * time.Millisecond

// clockSet sets the offset of a server's wall clock from true time, which makes the clock jump.
type clockSet struct {
	Server Target
	Offset time.Duration `least:"-1h"`
}

var _ = register("clock", 10, 0, func(d *Dice) clockSet {
	return clockSet{d.Server(), d.Between(-maxClock, maxClock)}
})

// Begin implements Effect.
func (f clockSet) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	before := w.Cluster.Clock(server).Offset()
	w.Cluster.Clock(server).SetOffset(f.Offset)
	return fmt.Sprintf("the clock of server %d, %v off, is now %v off", server,
		before.Round(time.Millisecond), f.Offset), nil
}

// clockDrift makes a server's wall clock run too fast or too slowly. The drift stops at the bound.
type clockDrift struct {
	Server Target
	// PPM is how many microseconds the clock gains in each second.
	PPM int `least:"-1000000"`
}

var _ = register("clock-drift", 4, 60*time.Second, func(d *Dice) clockDrift {
	return clockDrift{d.Server(), d.Of(-5000, -500, -50, 50, 500, 5000)}
})

// Begin implements Effect.
func (f clockDrift) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.Cluster.Clock(server).SetDrift(float64(f.PPM) / 1e6)
	return fmt.Sprintf("the clock of server %d drifts", server), func() string {
		w.Cluster.Clock(server).SetDrift(0)
		return fmt.Sprintf("the clock of server %d drifts no more", server)
	}
}

// clockWrong sets the offset of a server's wall clock beyond the bound. The server has to stop
// serving, so that all promises about transactions still hold, and single keys stay linearisable.
// Workloads that depend on other orders of timestamps do not run beside clockWrong.
type clockWrong struct {
	Server Target
	Offset time.Duration `least:"-1h"`
}

var clocksWrong = register("clock-wrong", 0, 15*time.Second, func(d *Dice) clockWrong {
	return clockWrong{d.Server(), d.Between(300*time.Millisecond, 5*time.Second) * time.Duration(
		d.Of(-1, 1))}
})

// Begin implements Effect.
func (f clockWrong) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	c := w.Cluster.Clock(server)
	c.SetLimit(0)
	c.SetOffset(f.Offset)
	return fmt.Sprintf("the clock of server %d is %v off, beyond the bound", server, f.Offset),
		func() string {
			c.SetOffset(0)
			c.SetLimit(maxClock)
			return fmt.Sprintf("the clock of server %d is right", server)
		}
}
