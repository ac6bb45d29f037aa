package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// Workload is a kind of traffic with its check.
type Workload interface {
	// Name is for reports.
	Name() string
	// Setup makes what the workload needs, in a cluster that nothing has happened to yet.
	Setup(ctx context.Context, w *World) error
	// Clients is how many Drives run at the same time.
	Clients() int
	// Drive is one client: it works until the context ends. Violations go to w.Violation.
	Drive(ctx context.Context, w *World, number int, client *kv.Client, random *rand.Rand)
	// Check looks at the end, when everything is healed and nobody writes.
	Check(ctx context.Context, w *World, client *kv.Client) error
}

// World is what workloads and faults have in common in one run.
type World struct {
	Cluster *kvtest.Cluster
	// History takes operations on single keys; names of keys must not repeat between workloads.
	History *history.Recorder

	began time.Time
	mu    struct {
		sync.Mutex
		violations []string
		log        string // the servers' log at the first violation
		events     []string
		operations map[string]int
		lastDone   time.Time
		longest    time.Duration
	}
}

// standstill is how long nothing may succeed without a word about it in the report.
const standstill = 3 * time.Second

// maxViolations is how many violations are kept of a run.
const maxViolations = 20

// Violation records that a guarantee was broken.
func (w *World) Violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.violations) == 0 {
		w.mu.log = w.Cluster.Log()
	}
	if len(w.mu.violations) < maxViolations {
		w.mu.violations = append(w.mu.violations, fmt.Sprintf("[%v] ", w.elapsed())+fmt.Sprintf(format, args...))
	}
}

// Event records what the schedule did.
func (w *World) Event(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.events = append(w.mu.events, fmt.Sprintf("[%v] ", w.elapsed())+fmt.Sprintf(format, args...))
}

// Count counts an operation by what it was and how it ended.
func (w *World) Count(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		what += " " + kindOf(err)
	} else {
		now := time.Now()
		if gap := now.Sub(w.mu.lastDone); !w.mu.lastDone.IsZero() && gap > w.mu.longest {
			w.mu.longest = gap
			if gap > standstill {
				w.mu.events = append(w.mu.events, fmt.Sprintf("[%v] before this nothing succeeded for %v", w.elapsed(), gap))
			}
		}
		w.mu.lastDone = now
	}
	w.mu.operations[what]++
}

func (w *World) elapsed() time.Duration { return time.Since(w.began).Round(time.Millisecond) }
