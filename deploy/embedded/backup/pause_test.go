package backup

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What a backup or a log reads, and a restore writes, makes way while clients ask for something, and
// only then.
func TestPauses(t *testing.T) {
	busy := false
	w := NewWorker(WorkerConfig{Busy: func(time.Time) bool { return busy }})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, p := range map[string]func(context.Context, time.Duration) error{
		"backups": w.pause(w.backups), "logs": w.pause(w.logs), "restores": w.pause(w.restores)} {
		busy = false
		if err := p(t.Context(), time.Hour); err != nil {
			t.Errorf("%s: idle: %v", name, err)
		}
	}
	busy = true
	if err := w.pause(w.backups)(over, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("backups: busy: %v", err)
	}
	if err := w.pause(w.restores)(over, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("restores: busy: %v", err)
	}
	// A log does not wait for the pauses of backups and restores.
	if err := w.pause(w.logs)(t.Context(), time.Microsecond); err != nil {
		t.Errorf("logs: busy: %v", err)
	}
}
