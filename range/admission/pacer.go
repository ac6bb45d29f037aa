package admission

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// Priority bends the figures of a Class.
type Priority int

const (
	// Low is background work as it usually is.
	Low Priority = iota
	// Awaited is work for which only other background work waits.
	Awaited
	// Urgent work does not pause: a request waits for it, or it falls behind what it has to keep up
	// with.
	Urgent
)

// Class is a kind of background work.
type Class struct {
	// Idle and Busy are how many times as long as a piece of work the pause after it is, while the
	// node is idle and while it is busy.
	Idle, Busy int
	// Longest bounds a pause; 0 does not.
	Longest time.Duration
	// InTurn: pauses are taken one after the other, by whatever goroutines.
	InTurn bool
	// Burst is how much of the pauses a class that was idle for so long need not take. InTurn only.
	Burst time.Duration
}

// The classes. See the package comment.
var (
	Resolution       = Class{Idle: 2, Busy: 8, Longest: 50 * time.Millisecond, InTurn: true}
	LargeTransaction = Class{Idle: 0, Busy: 6, Longest: 50 * time.Millisecond}
	Collection       = Class{Idle: 3, Busy: 3}
	Count            = Class{Idle: 1, Busy: 1, Longest: 10 * time.Millisecond, InTurn: true}
	Flush            = Class{Idle: 2, Busy: 2, Longest: 10 * time.Millisecond}
	Export           = Class{Idle: 0, Busy: 6, InTurn: true}
	Import           = Class{Idle: 0, Busy: 6, InTurn: true}
	Snapshot         = Class{Idle: 1, Busy: 1, InTurn: true, Burst: 100 * time.Millisecond}
)

// Pacer says for how long work of a class pauses. It is safe for concurrent use.
type Pacer struct {
	class  Class
	load   *Load
	paused atomic.Int64

	mu struct {
		sync.Mutex
		// next is when all pauses that were given out are over. InTurn only.
		next time.Time
	}
}

// NewPacer makes a pacer. load may be nil if the class has the same pauses busy and idle.
func NewPacer(c Class, load *Load) *Pacer { return &Pacer{class: c, load: load} }

// Times is how many times as long as a piece of work the pause after it is; 0: there is none.
func (p *Pacer) Times(now time.Time, by Priority) int {
	switch {
	case by == Urgent:
		return 0
	case by == Awaited || p.load == nil || !p.load.Busy(now):
		return p.class.Idle
	}
	return p.class.Busy
}

// Pause is for how long to pause after a piece of work that took so long. Each call is one pause.
func (p *Pacer) Pause(now time.Time, worked time.Duration, by Priority) time.Duration {
	times := p.Times(now, by)
	if times == 0 {
		return 0
	}
	d := max(0, time.Duration(times)*worked)
	if p.class.Longest > 0 {
		d = min(d, p.class.Longest)
	}
	p.paused.Add(int64(d))
	if !p.class.InTurn {
		return d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-p.class.Burst); p.mu.next.Before(earliest) {
		p.mu.next = earliest
	}
	p.mu.next = p.mu.next.Add(d)
	return max(0, p.mu.next.Sub(now))
}

// Paused is how long all pauses were together, by what the pieces of work took.
func (p *Pacer) Paused() time.Duration { return time.Duration(p.paused.Load()) }

// Wait is Pause, and pauses. It ends early with ctx.
func (p *Pacer) Wait(ctx context.Context, now time.Time, worked time.Duration, by Priority) error {
	return backoff.Sleep(ctx, p.Pause(now, worked, by))
}

// Worth is how long so many bytes take at a rate, for a class that is paced by that.
func Worth(bytes int, perSecond int64) time.Duration {
	return time.Duration(float64(bytes) / float64(perSecond) * float64(time.Second))
}
