package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// grantPeriod is how often a waiting compaction is offered again, because the limit on compactions
// may have risen.
const grantPeriod = 100 * time.Millisecond

// compactions decides when a database may run another compaction: as many at a time as the
// database's own limit. It differs from Pebble's own scheduler in one thing: it pauses after a
// compaction that failed. Pebble repeats a failed compaction at once, and would do nothing else on
// a disk that cannot be read.
//
// Lock order: Pebble's own lock, then mu. Calls into the database are made without mu.
type compactions struct {
	g  *diskHealth
	db pebble.DBForCompaction
	// failed is set when a compaction has ended with an error, and cleared by the pause that
	// follows.
	failed atomic.Bool

	mu struct {
		sync.Mutex
		running int
		// granting is set while a goroutine offers compactions, over when the database closes,
		// refused while the database may have a compaction that waits. A compaction waits only
		// after TrySchedule has refused it, until Pebble says otherwise.
		granting, over, refused bool
		backoff                 compactionBackoff
		// idle is signalled when granting becomes false.
		idle sync.Cond
	}
	// wake has room for one token: a compaction was refused.
	wake    chan struct{}
	stop    chan struct{}
	ticking sync.WaitGroup
}

var _ pebble.CompactionScheduler = (*compactions)(nil)

func newCompactions(g *diskHealth) *compactions {
	c := &compactions{g: g, wake: make(chan struct{}, 1), stop: make(chan struct{})}
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
		c.mu.backoff.failed(time.Now())
		c.mu.Unlock()
	}
}

// flushed notes that the database has changed. It does not block.
func (c *compactions) flushed() {
	c.mu.Lock()
	c.mu.backoff = compactionBackoff{}
	c.mu.Unlock()
}

// mayLocked says whether another compaction may begin.
func (c *compactions) mayLocked() bool {
	return !c.mu.over && c.g.roomForCompaction() && !c.mu.backoff.waits(time.Now(), c.g)
}

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) {
	c.db = db
	c.ticking.Go(c.tick)
}

// tick offers compactions periodically while one waits. It runs in one goroutine, from Register to
// Unregister.
func (c *compactions) tick() {
	timer := time.NewTimer(grantPeriod)
	defer timer.Stop()
	for {
		select {
		case <-c.wake:
		case <-c.stop:
			return
		}
		for again := true; again; again = c.waits() {
			timer.Reset(grantPeriod)
			select {
			case <-timer.C:
				c.grant()
			case <-c.stop:
				return
			}
		}
	}
}

// waits reports whether the database may have a compaction that waits.
func (c *compactions) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.refused
}

// refuseLocked notes that a compaction waits.
func (c *compactions) refuseLocked() {
	c.mu.refused = true
	select {
	case c.wake <- struct{}{}:
	default:
	}
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
		c.refuseLocked()
		return false, nil
	}
	c.mu.backoff.begins(c.g)
	c.mu.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. It does nothing: the
// next tick offers a waiting compaction.
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
	if c.mu.running--; c.mu.running == 0 {
		c.g.scratch.idle()
	}
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
		// Counted before it is offered, because it may end before Schedule returns.
		c.mu.running++
		c.mu.backoff.begins(c.g)
		// Cleared before the database is asked, so that a compaction that TrySchedule refuses after
		// the answer is not forgotten.
		c.mu.refused = false
		c.mu.Unlock()
		waiting, _ := c.db.GetWaitingCompaction()
		taken := waiting && c.db.Schedule(c)
		c.mu.Lock()
		if waiting {
			c.refuseLocked() // others may wait too
		}
		if !taken {
			c.mu.running--
			break
		}
	}
	c.mu.granting = false
	c.mu.idle.Broadcast()
	c.mu.Unlock()
}
