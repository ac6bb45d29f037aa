package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Run is what the workloads of one run have in common, and where they report. The exported fields
// are set before the first Setup and not changed afterwards.
type Run struct {
	// Open connects one more client; the caller closes it.
	Open func(ctx context.Context, options ...kv.Option) (*kv.Client, error)
	// OpenEtcd connects one more client of the coordination service, as EtcdService.Open does, which
	// the caller ends with hangUp; nil: the cluster has none.
	OpenEtcd func(ctx context.Context) (client *clientv3.Client, hangUp func(), err error)
	// History takes operations on single keys; names of keys must not repeat between workloads.
	History *history.Recorder
	// Incremental: what is over is taken out of the history, checked at once, and forgotten, so
	// that memory does not grow with the length of the run. Otherwise the history is whole at the
	// end; the caller checks it (in a synctest bubble: outside).
	Incremental bool
	// Replicas is how many replicas the workloads' keyspaces have; 0: as many as is usual.
	Replicas int
	// Weather is told of faults by what makes them happen: what fails in calm is a violation.
	Weather calm.Weather
	// Pace stretches the workloads' pauses.
	Pace Pace
	// OnViolation, if not nil, is called once: at the first violation, from the goroutine that
	// found it, before it is recorded.
	OnViolation func()
	// Began is when the run began.
	Began time.Time

	tally calm.Tally
	// finale is closed when the finale begins.
	finale chan struct{}
	first  sync.Once
	mu     struct {
		sync.Mutex
		violations []string
		dropped    int // violations beyond those kept
		events     []string
		operations map[string]int
		// transactions are those that succeeded, retries the attempts of any before the last.
		transactions, retries int
		lastDone              time.Time
		longest               time.Duration
		// later are checks that wait for the end of the run.
		later []func() []string
	}
}

// NewRun begins a run against the cluster that open connects to.
func NewRun(open func(ctx context.Context, options ...kv.Option) (*kv.Client, error)) *Run {
	r := &Run{Open: open, History: history.NewRecorder(), Began: time.Now(),
		finale: make(chan struct{})}
	r.mu.operations = make(map[string]int)
	return r
}

const (
	// standstill is how long nothing may succeed without a word about it among the events.
	standstill = 3 * time.Second
	// maxViolations is how many violations are kept of a run: the first ones.
	maxViolations = 20
	// maxEvents is how many events are kept of a run: the last ones.
	maxEvents = 10_000
)

// Violation records that a guarantee was broken.
func (r *Run) Violation(format string, args ...any) {
	if r.OnViolation != nil {
		r.first.Do(r.OnViolation)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.violations) == maxViolations {
		r.mu.dropped++
		return
	}
	r.mu.violations = append(r.mu.violations, r.stamp(fmt.Sprintf(format, args...)))
}

// checkPatience is how long the history of one key may take to check.
const checkPatience = 20 * time.Second

// Forget is told that the history of some keys is over: no client begins anything more on them.
func (r *Run) Forget(match func(key string) bool) {
	if !r.Incremental {
		return
	}
	r.CheckHistory(r.History.Take(match))
}

// CheckHistory checks operations on single keys and reports what it finds. It is not for a synctest
// bubble, where the time of the checker would stand still.
func (r *Run) CheckHistory(operations []history.Operation) history.Report {
	report := history.Check(operations, checkPatience)
	for _, f := range report.Failures {
		r.Violation("%v", f)
	}
	if len(report.Undecided) > 0 {
		r.Event("the histories of %q could not be decided", report.Undecided)
		r.Count("undecided history", nil)
	}
	return report
}

// CheckLater has something checked that takes real time: at once in a run that is Incremental,
// otherwise by CheckAll. check returns violations.
func (r *Run) CheckLater(check func() []string) {
	if !r.Incremental {
		r.mu.Lock()
		r.mu.later = append(r.mu.later, check)
		r.mu.Unlock()
		return
	}
	for _, violation := range check() {
		r.Violation("%s", violation)
	}
}

// CheckAll makes the checks of CheckLater that are left, and returns the violations. It is called
// once, at the end; not in a synctest bubble.
func (r *Run) CheckAll() (violations []string) {
	r.mu.Lock()
	later := r.mu.later
	r.mu.later = nil
	r.mu.Unlock()
	for _, check := range later {
		violations = append(violations, check()...)
	}
	return violations
}

// CreateKeyspace makes a workload's keyspace. A run begins with a cluster that has none of this
// name.
func (r *Run) CreateKeyspace(ctx context.Context, name string, options ...kv.KeyspaceOption) error {
	client, err := r.Open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if r.Replicas > 0 {
		options = append(options[:len(options):len(options)], kv.Replicas(r.Replicas))
	}
	_, err = client.CreateKeyspace(ctx, name, options...)
	return err
}

// Event records what happened to the cluster.
func (r *Run) Event(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eventLocked(fmt.Sprintf(format, args...))
}

func (r *Run) eventLocked(what string) {
	if len(r.mu.events) >= 2*maxEvents {
		r.mu.events = slices.Delete(r.mu.events, 0, maxEvents)
	}
	r.mu.events = append(r.mu.events, r.stamp(what))
}

// Count counts an operation by what it was and how it ended.
func (r *Run) Count(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		what += " " + kindOf(err)
	} else {
		now := time.Now()
		if gap := now.Sub(r.mu.lastDone); !r.mu.lastDone.IsZero() && gap > r.mu.longest {
			r.mu.longest = gap
			if gap > standstill {
				r.eventLocked(fmt.Sprintf("before this nothing succeeded for %v", gap))
			}
		}
		r.mu.lastDone = now
	}
	r.mu.operations[what]++
}

// CountTransaction counts a transaction by how it ended, after how many attempts.
func (r *Run) CountTransaction(attempts int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.transactions++
	}
	r.mu.retries += max(0, attempts-1)
}

// Transactions is how many transactions have succeeded, and how many attempts of transactions were
// followed by another one.
func (r *Run) Transactions() (succeeded, retries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.transactions, r.mu.retries
}

// Elapsed is how long the run has been going.
func (r *Run) Elapsed() time.Duration { return time.Since(r.Began) }

func (r *Run) stamp(what string) string {
	return fmt.Sprintf("[%v] %s", r.Elapsed().Round(time.Millisecond), what)
}

// Violations are the first broken guarantees, in order of their discovery. What History still holds
// is not checked yet.
func (r *Run) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	violations := slices.Clone(r.mu.violations)
	if r.mu.dropped > 0 {
		violations = append(violations, fmt.Sprintf("and %d more", r.mu.dropped))
	}
	return violations
}

// Events are the last events, in order.
func (r *Run) Events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.events)
}

// Operations counts by kind and outcome.
func (r *Run) Operations() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.mu.operations)
}

// Longest is the longest time in which no operation at all succeeded.
func (r *Run) Longest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.longest
}
