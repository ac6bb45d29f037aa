package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSnapshotWhileWritten: a follower that needs a snapshot catches up although the group is
// written to, and the log is truncated, while that is on its way.
func TestSnapshotWhileWritten(t *testing.T) {
	// entries of 1 kB for each tick; the log that is kept is of 20 to 30 kB
	for _, load := range []int{0, 1, 4} {
		t.Run(fmt.Sprint(load), func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				l := newLaggard(c)
				seen := make(map[int]bool)
				c.net.onStream = func(ctx context.Context, n int) error {
					if !seen[n] {
						seen[n] = true
						time.Sleep(5 * time.Second) // a large one
					}
					return ctx.Err()
				}
				c.start(l.away.id)
				written := 0
				behind := func() bool {
					leads, _, _ := l.leader.machines[100].state()
					follows, _, _ := l.away.machines[100].state()
					return follows+10 < leads
				}
				for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
					n, term := c.leader(100)
					for range load {
						if n != nil {
							written++
							_ = n.host.Group(100).Propose(term,
								[]byte(fmt.Sprintf("%d-", written)+strings.Repeat("x", 1000)))
						}
					}
					if time.Since(began) > 5*time.Second && !behind() {
						break
					}
					if time.Since(began) > time.Minute {
						t.Fatalf("it has not caught up after %d snapshots", c.net.streamed())
					}
				}
				// What was kept for it is given free.
				keep := int64(2 * 20_000)
				c.await("the log is truncated", func() bool {
					n, term := c.leader(100)
					if n == nil {
						return false
					}
					written++
					_ = n.host.Group(100).Propose(term,
						[]byte(fmt.Sprintf("%d-", written)+strings.Repeat("x", 1000)))
					_, _, bytes := n.host.Group(100).storage.Extent()
					return bytes <= keep
				})
			})
		})
	}
}

// A follower whose snapshots fail is sent them more and more rarely, and catches up when it can.
func TestFailingSnapshotsArePaced(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		c.net.onStream = func(context.Context, int) error { return errors.New("no space") }
		c.start(l.away.id)
		time.Sleep(30 * time.Second) // virtual
		if n := c.net.streamed(); n < 5 || n > 15 {
			t.Errorf("%d snapshots were tried in 30 s", n)
		}
		c.net.mu.Lock()
		c.net.onStream = nil
		c.net.mu.Unlock()
		began := time.Now()
		c.await("it catches up", func() bool {
			leads, _, _ := l.leader.machines[100].state()
			follows, _, _ := l.away.machines[100].state()
			return follows+10 >= leads
		})
		if took := time.Since(began); took > 2*mostSnapshotRetry {
			t.Errorf("it has caught up %v after it could", took)
		}
	})
}
