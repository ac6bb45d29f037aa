package transport

import (
	"fmt"
	"sync"
	"time"
)

// If the other side of a connection vanishes (power, cable, a stopped process), this must be
// noticed in about two seconds, because a leader's successor is elected in that time. So each side
// sends a keepalive when it has sent nothing since the tick before, and closes the connection when
// it has received nothing for too many ticks.
//
// A side that is too busy to read receives nothing, and cannot tell whether the other side is
// alive. It judges by its writes: the connection ends if a write makes no progress for as long.
//
// Ticks are counted instead of times compared, so that after a pause of this process (SIGSTOP, a
// starved machine) it first reads what has arrived meanwhile.
//
// The ticks of all connections coincide, and so do most of the keepalives that arrive: an idle
// process wakes up once for all of them.

// Tick is how often a connection is checked.
const Tick = 500 * time.Millisecond

// UntilTick returns how long it is until the first tick that is at least least away. Ticks are the
// multiples of Tick by the wall clock. If the clock is set, one tick comes earlier or later.
func UntilTick(least time.Duration) time.Duration {
	d := Tick - time.Duration(time.Now().UnixNano())%Tick
	for d < least {
		d += Tick
	}
	return d
}

// watch watches a connection. The zero value watches nothing.
type watch struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	// reads and writes are the counts at the last tick; silent counts the ticks without progress.
	reads, writes uint64
	silent        int
}

func (w *watch) start(c *Conn, limit time.Duration, idle func()) {
	breakAfter := int(limit / Tick)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.reads, w.writes = c.socket.reads.Load(), c.socket.writes.Load()
	w.timer = time.AfterFunc(UntilTick(Tick/2), func() {
		broken, quiet := w.look(c, breakAfter)
		if broken {
			c.Break(fmt.Errorf("nothing was heard for %v: no answer in time", limit))
			return
		}
		if quiet {
			idle()
		}
	})
}

// look is a tick. broken reports that the connection is dead, quiet that nothing was sent.
func (w *watch) look(c *Conn, breakAfter int) (broken, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false, false
	}
	s := c.socket
	reads, writes := s.reads.Load(), s.writes.Load()
	quiet = writes == w.writes
	stands := reads == w.reads && s.reading.Load()
	if !s.reading.Load() {
		stands = quiet && s.writing.Load()
	}
	w.reads, w.writes = reads, writes
	if !stands {
		w.silent = 0
	} else if w.silent++; w.silent >= breakAfter {
		return true, quiet
	}
	w.timer.Reset(UntilTick(Tick / 2))
	return false, quiet
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
