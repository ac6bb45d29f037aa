package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// askedDB is a database that has one compaction or none, and counts how often it is asked.
type askedDB struct {
	allowed, asked, ran atomic.Int64
	waiting             atomic.Bool
}

func (d *askedDB) GetAllowedWithoutPermission() int { return int(d.allowed.Load()) }

func (d *askedDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	d.asked.Add(1)
	return d.waiting.Load(), pebble.WaitingCompaction{}
}

func (d *askedDB) Schedule(h pebble.CompactionGrantHandle) bool {
	if !d.waiting.Swap(false) {
		return false
	}
	d.ran.Add(1)
	go h.Done()
	return true
}

// A database without a compaction that waits is not asked again and again. One that was refused a
// compaction gets it soon after it may have it.
func TestOnlyCompactionsThatWaitAreOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompactions(newDiskHealth(Options{FS: vfs.NewMem()}, kindState))
		db := &askedDB{}
		c.Register(1, db)
		defer c.Unregister()
		for range 3 {
			before := db.asked.Load()
			time.Sleep(time.Minute)
			if n := db.asked.Load() - before; n > 1 {
				t.Fatalf("a database in which nothing waits was asked %d times", n)
			}
			ran := db.ran.Load()
			db.waiting.Store(true)
			if ok, _ := c.TrySchedule(); ok {
				t.Fatal("more compactions than are allowed")
			}
			time.Sleep(10 * grantPeriod)
			if db.ran.Load() != ran {
				t.Fatal("more compactions than are allowed")
			}
			db.allowed.Store(1)
			time.Sleep(2 * grantPeriod)
			if db.ran.Load() != ran+1 {
				t.Fatal("a compaction that waited was not offered when it was allowed")
			}
			time.Sleep(10 * grantPeriod)
			db.allowed.Store(0)
		}
	})
}
