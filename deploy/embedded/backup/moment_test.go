package backup

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/job"
)

// write is what a program has written to a keyspace, at a timestamp, before it wrote to the
// coordination store.
type write struct{ before hlc.Timestamp }

// written is a coordination store that has nothing but a list of writes.
type written struct {
	mu  sync.Mutex
	all []write
	job.Coordination
}

func (w *written) Close() {}

// The coordination store of a backup is not newer than its keyspaces: whoever writes to a keyspace
// and then to the coordination store finds the first write in the backup if the second is in it,
// whichever of the servers' clocks has given the timestamp, also where a leadership has just begun.
func TestCoordinationIsNotNewer(t *testing.T) {
	const offset = 200 * time.Millisecond
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			random := rand.New(rand.NewPCG(seed, 1))
			now := &written{}
			var programs sync.WaitGroup
			for range 5 {
				clock := testClock(time.Duration(random.Int64N(int64(offset))), offset)
				first := time.Duration(0) // by how much the first timestamps of a leader are ahead
				if random.IntN(2) == 0 {
					first = clock.MaxAhead()
				}
				pause := time.Duration(1 + random.Int64N(int64(50*time.Millisecond)))
				programs.Go(func() {
					for ctx.Err() == nil {
						w := write{before: clock.Now().Add(first)}
						time.Sleep(pause) // virtual
						now.mu.Lock()
						now.all = append(now.all, w)
						now.mu.Unlock()
					}
				})
			}
			time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
			c := &cluster{Maker: NewMaker(MakerConfig{Clock: testClock(-24*time.Hour, offset),
				Coordination: func(context.Context) (job.Coordination, error) {
					now.mu.Lock()
					defer now.mu.Unlock()
					return &written{all: append([]write(nil), now.all...)}, nil
				}})}
			// The clock of the member is a day behind.
			node := ahead(random.Int64N(int64(offset)))
			at, state, err := c.moment(ctx, func(context.Context) (int64, error) {
				return node.Now(), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			programs.Wait()
			for _, w := range state.(*written).all {
				if at.Less(w.before) {
					t.Errorf("the coordination store has what was written after %v, and the keyspaces end at %v",
						w.before, at)
				}
			}
		})
	}
}

// ahead is a physical clock that is ahead of the virtual one.
type ahead time.Duration

// Now implements hlc.Physical.
func (a ahead) Now() int64 { return time.Now().UnixNano() + int64(a) }

// testClock is a clock that is ahead by some time, one of clocks that differ by an offset at most.
func testClock(by, offset time.Duration) *hlc.Clock {
	return hlc.NewClock(ahead(by), hlc.FixedBound(offset))
}
