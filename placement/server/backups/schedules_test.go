package backups

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A failure in the future was recorded by a leader with a wrong clock, and does not end a schedule.
func TestDueAfterFailureInFuture(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		failed time.Duration
		due    bool
	}{{-2 * time.Minute, true}, {-time.Second, false}, {10 * 24 * time.Hour, true}} {
		s := schedule{&clusterpb.BackupSchedule{FullMillis: 3_600_000, Failures: 1,
			ErrorUnixMs: now.Add(test.failed).UnixMilli()}, 1}
		if full, incremental, at := s.due(now); (full || incremental) != test.due {
			t.Errorf("a failure %v from now: %t, %t, at %v", test.failed, full, incremental, at)
		}
	}
}
