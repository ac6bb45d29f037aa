package workloads

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// One scan of fifty fails, and nothing else is wrong. In calm the run fails for that reason; in a
// storm it does not. An operation that never succeeds makes the run fail in a storm, too.
func TestErrorsInCalm(t *testing.T) {
	load := func() driver.Workload {
		return &Batches{Groups: 5, Size: 4, Pause: 50 * time.Millisecond, Parallel: 4}
	}
	says := func(f found, text string) bool {
		return slices.ContainsFunc(f.violations,
			func(v string) bool { return strings.Contains(v, text) })
	}
	few, all := mistakes{FailedScans: 50}, mistakes{FailedScans: 1}
	for range 3 { // chance decides which scans fail
		if f := driveIn(t, load(), few, false, 30*time.Second); !says(f, "in calm a scan") {
			t.Errorf("of fifty scans one fails in calm, and the run does not complain: %q",
				f.violations)
		}
	}
	f := driveIn(t, load(), few, true, 20*time.Second)
	for _, v := range f.violations {
		if !strings.Contains(v, "check: ") { // the check accepts no error at all
			t.Errorf("scans fail in a storm, which they may: %s", v)
		}
	}
	if f := driveIn(t, load(), all, true, 20*time.Second); !says(f, "scan never succeeded") {
		t.Errorf("no scan ever succeeds, and the run does not complain: %q", f.violations)
	}
}
