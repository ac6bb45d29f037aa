package store

import (
	"fmt"
	"sync"
	"testing"
)

// Commands that come while two entries are on their way share the next one, in their order, and
// come to the same as alone.
func TestCommandsShareEntries(t *testing.T) {
	c, s := one(t, func(config *Config) { config.GroupCommands = true })
	c.setCut(true) // nothing is applied, so that commands gather
	const n = 100
	var running sync.WaitGroup
	revisions := make(chan uint64, n)
	for i := range n {
		running.Go(func() {
			result, err := s.Do(t.Context(), writes(Put([]byte("counter"), []byte(fmt.Sprint(i)))))
			if err != nil {
				t.Error(err)
				return
			}
			revisions <- result.Revision
		})
	}
	for {
		if waiting, _ := s.Pending(); waiting == n {
			break
		}
	}
	c.setCut(false)
	running.Wait()
	close(revisions)
	seen := map[uint64]bool{}
	for r := range revisions {
		if seen[r] {
			t.Errorf("two commands have revision %d", r)
		}
		seen[r] = true
	}
	kv, err := s.Stale().Get([]byte("counter"))
	if err != nil || kv.Version != n || len(seen) != n {
		t.Errorf("%v, %v, %d revisions", kv, err, len(seen))
	}
	c.mu.Lock()
	entries := len(c.log)
	c.mu.Unlock()
	if entries > 4 {
		t.Errorf("%d entries for %d commands", entries, n)
	}
	// Another member comes to the same state from that log.
	other := newCore(t, 1, nil)
	defer other.close()
	c.mu.Lock()
	other.log = append(other.log, c.log...)
	c.mu.Unlock()
	other.members[0].catchUp()
	same(t, c.members[0].dump(), other.members[0].dump())
}
