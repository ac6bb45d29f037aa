package driver

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

// reports tells a run the outcomes of the operations of one client of a workload.
type reports struct {
	run      *Run
	workload string
	retries  *Retries
}

// report is an operation that is under way.
type report struct {
	reports
	ctx       context.Context
	operation calm.Operation
	before    int
}

func (r reports) begin(ctx context.Context, kind string) report {
	p := report{reports: r, ctx: ctx, operation: calm.Operation{Kind: kind, Workload: r.workload,
		Began: time.Now()}, before: r.retries.Sum()}
	if deadline, limited := ctx.Deadline(); limited {
		p.operation.Patience = max(1, deadline.Sub(p.operation.Began))
	}
	return p
}

// beginPart is begin for a part of a transaction that the workload itself retries.
func (r reports) beginPart(ctx context.Context, kind string) report {
	p := r.begin(ctx, kind)
	p.operation.Part = true
	return p
}

// end reports the end of the operation. The operation's attempts are the attempts of its requests.
func (p report) end(err error) { p.endAfter(1+p.retries.Sum()-p.before, err) }

// endAfter is end with the given number of attempts.
func (p report) endAfter(attempts int, err error) {
	if err != nil && errors.Is(p.ctx.Err(), context.Canceled) {
		return // the run is over, or the workload has cancelled the operation
	}
	p.operation.Attempts, p.operation.Err = attempts, err
	p.run.ended(p.operation)
}

// ended counts an operation. The first failure in calm of each workload, kind and reason is a
// violation.
func (r *Run) ended(o calm.Operation) {
	quiet := r.Weather.Calm(o.Began)
	why := ""
	if o.Err != nil {
		why = kindOf(o.Err)
	}
	if r.tally.Record(o, quiet, why) {
		r.Violation("in calm a %s of %s, begun %v ago with patience for %v, failed after %d "+
			"attempts: %v", o.Kind, o.Workload,
			time.Since(o.Began).Round(time.Millisecond), o.Patience, o.Attempts, o.Err)
	}
}

// Rows returns the outcomes of all operations.
func (r *Run) Rows() []calm.Row { return r.tally.Rows() }

// Judge checks the outcomes of all operations of the run. An operation that succeeded too rarely in
// calm, or never, is a violation. Judge must be called once, at the end.
func (r *Run) Judge() {
	for _, complaint := range calm.Verdict(r.Rows()) {
		r.Violation("%s", complaint)
	}
}
