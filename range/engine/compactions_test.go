package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk that cannot be read makes compactions fail. They are tried again with pauses, so that time
// passes, and succeed when the disk can be read again.
func TestCompactionsThatFailPause(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, _ *vfs.MemFS) {
		s := openTestState(t, Options{FS: fs})
		var reads atomic.Int64
		fs.set(func(op, name string, n int) (int, error) {
			if op == "read" && path.Ext(name) == ".sst" {
				reads.Add(1)
				return 0, syscall.EIO
			}
			return n, nil
		})
		// Tables that overlap, more than may stay as they are.
		for i := range 20 {
			for k := range 10 {
				if err := apply(s, version(fmt.Sprint(k), int64(i+1)), []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		const patience = 10 * time.Second
		passTime(patience)
		failed := reads.Load()
		if failed == 0 {
			t.Fatal("nothing was compacted: the test proves nothing")
		}
		// Each attempt fails with one of its first reads; a few of them run at a time.
		if most := int64(patience/retryDelay) * 20; failed > most {
			t.Errorf("%d reads failed in %s, want %d at most", failed, patience, most)
		}
		before := s.db.Metrics().Compact.Count
		fs.set(nil)
		deadline := time.Now().Add(time.Minute)
		for ; s.db.Metrics().Compact.Count == before; passTime(retryDelay) {
			if time.Now().After(deadline) {
				t.Fatal("no compaction within a minute of the disk's recovery")
			}
		}
		if got := get(t, s, version("3", 20)); got != "v" {
			t.Errorf("after the compaction: %q", got)
		}
	})
}

// What an operator has nothing to do about is no error in the log: a compaction whose files have
// gone begins anew.
func TestCancelledCompactionIsNoError(t *testing.T) {
	var log bytes.Buffer
	s := openTestState(t, Options{FS: vfs.NewMem()})
	s.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	listener := s.listener()
	listener.BackgroundError(fmt.Errorf("compacting: %w", pebble.ErrCancelledCompaction))
	if log.Len() > 0 {
		t.Errorf("it says %s", &log)
	}
	listener.BackgroundError(errors.New("something else"))
	if !strings.Contains(log.String(), "something else") {
		t.Errorf("another error is not told: %q", &log)
	}
}
