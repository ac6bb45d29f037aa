package store

import (
	"bytes"
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
		s.mu.Lock()
		waiting := len(s.mu.pending)
		s.mu.Unlock()
		if waiting == n {
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
	if entries > 1+maxGroups+2 {
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

// FuzzGroup: an entry from elsewhere is taken apart, or refused, and never more.
func FuzzGroup(f *testing.F) {
	f.Add([]byte{groupFormat, 2, 1, 0})
	f.Add([]byte{groupFormat, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{groupFormat, 2, groupFormat, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var group []grouped
		if err := eachCommand(data, func(c []byte) error {
			group = append(group, grouped{data: c})
			return nil
		}); err != nil || len(group) < 2 {
			return
		}
		i := 0
		if err := eachCommand(encodeGroup(group), func(c []byte) error {
			if !bytes.Equal(c, group[i].data) {
				t.Errorf("command %d is %x, was %x", i, c, group[i].data)
			}
			i++
			return nil
		}); err != nil || i != len(group) {
			t.Errorf("%d of %d commands: %v", i, len(group), err)
		}
	})
}
