package serving

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestOffsetClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "offset")
	logger := slog.New(slog.DiscardHandler)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := NewOffsetClock(file, logger)
		followed := make(chan struct{})
		go func() { defer close(followed); c.Follow(ctx, logger) }()
		for _, step := range []struct {
			content string
			want    time.Duration
		}{
			{"-120ms\n", -120 * time.Millisecond},
			{"nonsense", -120 * time.Millisecond}, // as it was
			{"2s", 2 * time.Second},
			{"0s", 0},
			{"1h", time.Hour},
		} {
			if err := os.WriteFile(file, []byte(step.content), 0o644); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * clockOffsetPoll)
			synctest.Wait()
			if got := time.Duration(c.Now() - time.Now().UnixNano()); got != step.want {
				t.Errorf("after %q the clock is %v off, want %v", step.content, got, step.want)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * clockOffsetPoll)
		synctest.Wait()
		if got := time.Duration(c.Now() - time.Now().UnixNano()); got != 0 {
			t.Errorf("without a file the clock is %v off", got)
		}
		cancel()
		<-followed
	})
}

func TestOffsetIsThereFromTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "offset")
	if err := os.WriteFile(file, []byte("24h"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := NewOffsetClock(file, slog.New(slog.DiscardHandler))
	if ahead := time.Duration(c.Now() - time.Now().UnixNano()); ahead < 23*time.Hour {
		t.Errorf("the clock is %v ahead, want 24h", ahead)
	}
}
