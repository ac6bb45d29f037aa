package backups

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A log whose writing has ended by itself, as after a short pause of its schedule, begins again.
func TestEndedLogBeginsAgain(t *testing.T) {
	l := newLogs(nil)
	wanted := []schedule{{BackupSchedule: &clusterpb.BackupSchedule{Name: "s", Log: "1", LogMillis: 1}}}
	begun := 0
	begin := func(_ schedule, w *writing) {
		begun++
		w.cancel = func() { close(w.done) }
	}
	for range 3 {
		l.only(wanted, begin)
	}
	if begun != 1 {
		t.Fatalf("a log that is written was begun %d times", begun)
	}
	l.open["s"].cancel()
	if l.only(wanted, begin); begun != 2 {
		t.Error("the log that has ended is not written again")
	}
	if l.only(nil, begin); len(l.open) != 0 {
		t.Errorf("open: %v", l.open)
	}
}
