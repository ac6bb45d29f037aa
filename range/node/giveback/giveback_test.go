package giveback

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// world is the engines of a node, and what was done to them.
type world struct {
	full        bool
	truncations uint64
	err         error
	done        []string
}

func (w *world) AsyncFlush() error { w.done = append(w.done, "flush"); return nil }

func (w *world) Reclaim() error { w.done = append(w.done, "log"); return nil }

// logs is a world as its logs.
type logs struct{ *world }

func (l logs) GiveBack(_ context.Context, id keys.PartitionID) error {
	l.done = append(l.done, fmt.Sprintf("log%d", id))
	return l.err
}

func (w *world) GiveBack(_ context.Context, span keys.Span) error {
	w.done = append(w.done, string(span.Start))
	return w.err
}

// A full disk gives back what was removed and truncated, when enough was or when no more comes, and
// once. It does nothing else, and nothing again and again that finds no room.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{}
		worker := New(Config{State: w, Log: logs{w}, Full: func() bool { return w.full },
			Spans: func(id keys.PartitionID) []keys.Span {
				return []keys.Span{{Start: fmt.Appendf(nil, "p%d", id)}}
			},
			Truncations: func() uint64 { return w.truncations }, StepBytes: 100,
			GivenBack: func() { w.done = append(w.done, "given") },
			Logger:    slog.New(slog.DiscardHandler)})
		go worker.Run(ctx)
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := strings.Join(w.done, " "); got != want {
				t.Errorf("it did %q, want %q", got, want)
			}
			w.done = nil
		}
		const look = lookEvery + time.Millisecond
		worker.Removed(1, 10)
		after(10*time.Second, "") // there is room
		w.full = true
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
		w.truncations++
		after(10*time.Second, "log")
		worker.RemovedLogs(7, 6)
		after(10*time.Second, "log6 log7")
		w.full = false
		worker.RemovedLogs(8)
		after(lookEvery, "")
		w.full = true
		after(10*time.Second, "")
		worker.Removed(3, 100)
		worker.Forget(3)
		after(10*time.Second, "")
		w.err = fmt.Errorf("compaction: %w", engine.ErrNoRoom)
		worker.Removed(4, 100)
		after(lookEvery, "flush p4")
		after(firstRest-lookEvery, "")
		after(lookEvery, "p4")
		after(10*longestRest, strings.TrimSpace(strings.Repeat("p4 ", 13)))
		worker.RemovedLogs(9)
		after(longestRest, "log9")
		w.err = nil
		after(longestRest, "log9 p4 given")
		after(time.Hour, "")
		cancel()
		synctest.Wait()
	})
}
