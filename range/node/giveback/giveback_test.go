package giveback

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// world is the engines of a node, and what was done to them. The worker and the test share it.
type world struct {
	mu          sync.Mutex
	full        bool
	truncations uint64
	err         error
	done        []string
}

// note adds to what was done.
func (w *world) note(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, what)
	return w.err
}

// change changes the world.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) AsyncFlush() error { _ = w.note("flush"); return nil }

func (w *world) Reclaim() error { _ = w.note("log"); return nil }

// logs is a world as its logs.
type logs struct{ *world }

func (l logs) GiveBack(_ context.Context, id keys.PartitionID) error {
	return l.note(fmt.Sprintf("log%d", id))
}

func (w *world) GiveBack(_ context.Context, span keys.Span) error {
	return w.note(string(span.Start))
}

// A full disk gives back what was removed and truncated, when enough was or when no more comes, and
// once. It does nothing else, and nothing again and again that finds no room.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{}
		worker := New(Config{State: w, Log: logs{w}, Full: func() (full bool) {
			w.change(func() { full = w.full })
			return full
		},

			Spans: func(id keys.PartitionID) []keys.Span {
				return []keys.Span{{Start: fmt.Appendf(nil, "p%d", id)}}
			},
			Truncations: func() (n uint64) {
				w.change(func() { n = w.truncations })
				return n
			}, StepBytes: 100,
			GivenBack: func() { _ = w.note("given") },
			Logger:    slog.New(slog.DiscardHandler)})
		go worker.Run(ctx)
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			w.change(func() {
				if got := strings.Join(w.done, " "); got != want {
					t.Errorf("it did %q, want %q", got, want)
				}
				w.done = nil
			})
		}
		const look = lookEvery + time.Millisecond
		worker.Removed(1, 10)
		after(10*time.Second, "") // there is room
		w.change(func() { w.full = true })
		after(look, "flush")
		after(lookEvery, "p1 given")
		after(time.Minute, "")
		worker.Removed(2, 99)
		after(lookEvery, "")
		worker.Removed(2, 99)
		after(lookEvery, "p2 given")
		worker.Removed(2, 1)
		after(lookEvery, "")
		worker.Removed(2, 1)
		after(lookEvery, "")
		after(lookEvery, "p2 given")
		w.change(func() { w.truncations++ })
		after(10*time.Second, "log")
		worker.RemovedLogs(7, 6)
		after(10*time.Second, "log6 log7")
		w.change(func() { w.full = false })
		worker.RemovedLogs(8)
		after(lookEvery, "")
		w.change(func() { w.full = true })
		after(10*time.Second, "")
		worker.Removed(3, 100)
		worker.Forget(3)
		after(10*time.Second, "")
		w.change(func() { w.err = fmt.Errorf("compaction: %w", engine.ErrNoRoom) })
		worker.Removed(4, 100)
		after(lookEvery, "flush p4")
		after(firstRest-lookEvery, "")
		after(lookEvery, "p4")
		after(10*longestRest, strings.TrimSpace(strings.Repeat("p4 ", 13)))
		worker.RemovedLogs(9)
		after(longestRest, "log9")
		w.change(func() { w.err = nil })
		after(longestRest, "log9 p4 given")
		after(time.Hour, "")
		cancel()
		synctest.Wait()
	})
}
