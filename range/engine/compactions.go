package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// grantPeriod is how often compactions are offered to a database whose limit may have risen
// meanwhile.
const grantPeriod = 100 * time.Millisecond

// compactions decides when a database may run another compaction: as many at a time as it allows
// itself. It differs from Pebble's own scheduler in one thing: after a compaction that failed comes
// a pause. Pebble repeats it at once and for ever, and would do nothing else on a disk that cannot
// be read.
//
// Lock order: Pebble's own lock, then mu. Calls into the database are made without mu.
type compactions struct {
	g  *guard
	db pebble.DBForCompaction
	// failed: a compaction has ended with an error, and no pause followed yet.
	failed atomic.Bool

	mu struct {
		sync.Mutex
		running int
		// granting: a goroutine is offering compactions. over: the database closes.
		granting, over bool
		pressed        pressed
		// idle wakes what waits for granting to become false.
		idle sync.Cond
	}
	stop    chan struct{}
	ticking sync.WaitGroup
}

var _ pebble.CompactionScheduler = (*compactions)(nil)

func newCompactions(g *guard) *compactions {
	c := &compactions{g: g, stop: make(chan struct{})}
	c.mu.idle.L = &c.mu
	return c
}

// ended notes how a compaction ended. It does not block.
func (c *compactions) ended(err error) {
	if err == nil {
		return
	}
	c.failed.Store(true)
	if errors.Is(err, ErrNoRoom) {
		c.mu.Lock()
		c.mu.pressed.failed(time.Now())
		c.mu.Unlock()
	}
}

// flushed notes that the database has changed. It does not block.
func (c *compactions) flushed() {
	c.mu.Lock()
	c.mu.pressed = pressed{}
	c.mu.Unlock()
}

// mayLocked says whether another compaction may begin.
func (c *compactions) mayLocked() bool {
	return !c.mu.over && c.g.roomForCompaction() && !c.mu.pressed.waits(time.Now(), c.g)
}

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) {
	c.db = db
	c.ticking.Go(func() {
		t := time.NewTicker(grantPeriod)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				c.grant()
			case <-c.stop:
				return
			}
		}
	})
}

// Unregister implements pebble.CompactionScheduler: the database is not called after it.
func (c *compactions) Unregister() {
	close(c.stop)
	c.ticking.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.over = true
	for c.mu.granting {
		c.mu.idle.Wait()
	}
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mayLocked() || c.mu.running >= c.db.GetAllowedWithoutPermission() {
		return false, nil
	}
	c.mu.pressed.begins(c.g)
	c.mu.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. The next tick sees to
// it.
func (c *compactions) UpdateGetAllowedWithoutPermission() {}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle. Pebble calls it at the end of a compaction, with no
// lock held.
func (c *compactions) Done() {
	if c.failed.CompareAndSwap(true, false) {
		c.g.pause(retryDelay)
	}
	c.mu.Lock()
	c.mu.running--
	c.mu.Unlock()
	c.grant()
}

// grant offers compactions to the database until it has none to run, or may run no more.
func (c *compactions) grant() {
	c.mu.Lock()
	if c.mu.granting || !c.mayLocked() {
		c.mu.Unlock()
		return
	}
	c.mu.granting = true
	for !c.mu.over && c.mu.running < c.db.GetAllowedWithoutPermission() {
		// Counted before it is offered: it may end before Schedule returns.
		c.mu.running++
		c.mu.pressed.begins(c.g)
		c.mu.Unlock()
		waiting, _ := c.db.GetWaitingCompaction()
		taken := waiting && c.db.Schedule(c)
		c.mu.Lock()
		if !taken {
			c.mu.running--
			break
		}
	}
	c.mu.granting = false
	c.mu.idle.Broadcast()
	c.mu.Unlock()
}
