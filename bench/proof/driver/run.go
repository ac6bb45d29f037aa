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

// Run has the data that the workloads of one run share, and collects their reports. The exported
// fields are set before the first Setup and not changed afterwards.
type Run struct {
	// Open connects one more client; the caller closes it.
	Open func(ctx context.Context, options ...kv.Option) (*kv.Client, error)
	// OpenEtcd connects one more client of the coordination service, like EtcdService.Open. The caller
	// closes the client with hangUp. OpenEtcd is nil if the cluster has no coordination service.
	OpenEtcd func(ctx context.Context) (client *clientv3.Client, hangUp func(), err error)
	// History records operations on single keys. Two workloads must not use keys of the same name.
	History *history.Recorder
	// Incremental: finished parts are removed from the history, checked at once, and dropped, so that
	// memory does not grow with the length of the run. Otherwise the whole history is kept to the end,
	// and the caller checks it (outside of a synctest bubble).
	Incremental bool
	// Replicas is the number of replicas of the workloads' keyspaces. 0 means the default.
	Replicas int
	// Weather records the faults. The code that causes faults reports them to it. A failure in calm is
	// a violation.
	Weather calm.Weather
	// Pace stretches the workloads' pauses.
	Pace Pace
	// OnViolation, if not nil, is called once: at the first violation, from the goroutine that
	// found it, before it is recorded.
	OnViolation func()
	// Began is the time when the run began.
	Began time.Time

	tally calm.Tally
	// finale is closed when the finale begins.
	finale chan struct{}
	first  sync.Once
	mu     struct {
		sync.Mutex
		violations []string
		dropped    int // violations beyond maxViolations
		events     []string
		operations map[string]int
		// transactions is the number of successful transactions. retries is the number of attempts before
		// the last attempt, over all transactions.
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
	// standstill is a duration: a longer time without any success is recorded as an event.
	standstill = 3 * time.Second
	// maxViolations is the number of violations that a run keeps. It keeps the first violations.
	maxViolations = 20
	// maxEvents is the number of events that a run keeps. It keeps the last events.
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

// checkPatience bounds the time of the check of one key's history.
const checkPatience = 20 * time.Second

// Forget ends the history of some keys. No client may begin an operation on these keys any more.
func (r *Run) Forget(match func(key string) bool) {
	if !r.Incremental {
		return
	}
	r.CheckHistory(r.History.Take(match))
}

// CheckHistory checks operations on single keys and reports violations. It must not run in a
// synctest bubble, because the checker's clock would stand still there.
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

// CheckLater takes a check that needs real time. In an Incremental run it runs the check at once.
// Otherwise CheckAll runs the check. check returns violations.
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

// CheckAll runs the remaining checks of CheckLater, and returns the violations. It must be called
// once, at the end, outside of a synctest bubble.
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

// CreateKeyspace creates a workload's keyspace. At the start of a run the cluster has no keyspace
// of this name.
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

// Event records an event of the cluster.
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

// Count counts an operation by kind and outcome.
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

// CountTransaction counts a transaction by its outcome and its number of attempts.
func (r *Run) CountTransaction(attempts int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.mu.transactions++
	}
	r.mu.retries += max(0, attempts-1)
}

// Transactions returns the number of successful transactions, and the number of attempts that were
// followed by another attempt.
func (r *Run) Transactions() (succeeded, retries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.transactions, r.mu.retries
}

// Elapsed returns the time since the beginning of the run.
func (r *Run) Elapsed() time.Duration { return time.Since(r.Began) }

func (r *Run) stamp(what string) string {
	return fmt.Sprintf("[%v] %s", r.Elapsed().Round(time.Millisecond), what)
}

// Violations returns the first broken guarantees, in order of discovery. The operations that are
// still in History are not checked yet.
func (r *Run) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	violations := slices.Clone(r.mu.violations)
	if r.mu.dropped > 0 {
		violations = append(violations, fmt.Sprintf("and %d more", r.mu.dropped))
	}
	return violations
}

// Events returns the last events, in order.
func (r *Run) Events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.events)
}

// Operations returns the numbers of operations by kind and outcome.
func (r *Run) Operations() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.mu.operations)
}

// Longest returns the longest time in which no operation succeeded.
func (r *Run) Longest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.longest
}
