package store

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A history that is kept by time has every revision that was the newest within it, and not much
// more; a new leader keeps what it finds for as long.
func TestHistoryByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newCore(t, 2, func(config *Config) {
			config.HistoryFor = time.Hour
			config.Monotonic = func() int64 { return int64(time.Since(began)) + 1 }
		})
		defer c.close()
		c.elect(c.members[0])
		at := map[time.Duration]uint64{}
		check := func(leader *member, minutes int) {
			for i := range minutes {
				at[time.Since(began).Round(time.Minute)] = put(t, leader.store, "a", fmt.Sprint(i))
				time.Sleep(time.Minute)
				synctest.Wait()
				c.members[0].catchUp()
				c.members[1].catchUp()
				hourAgo := at[time.Since(began).Round(time.Minute)-time.Hour]
				if compacted := leader.store.Compacted(); hourAgo > 0 && compacted > hourAgo {
					t.Fatalf("after %v: revision %d was the newest an hour ago, and %d is compacted",
						time.Since(began), hourAgo, compacted)
				}
			}
		}
		check(c.members[0], 180)
		if n := c.members[0].store.Revision() - c.members[0].store.Compacted(); n > 70 {
			t.Errorf("%d revisions are kept, 60 are of the last hour", n)
		}
		c.elect(c.members[1])
		check(c.members[1], 180)
		if n := c.members[1].store.Revision() - c.members[1].store.Compacted(); n > 70 {
			t.Errorf("%d revisions are kept, 60 are of the last hour", n)
		}
	})
}

// Without a limit nothing is compacted by itself.
func TestHistoryWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 1, func(config *Config) { config.HistoryFor = -1 })
		defer c.close()
		c.elect(c.members[0])
		for i := range 30_000 {
			put(t, c.members[0].store, "a", fmt.Sprint(i))
		}
		time.Sleep(24 * time.Hour)
		if n := c.members[0].store.Compacted(); n != 0 {
			t.Errorf("revision %d is compacted", n)
		}
	})
}
