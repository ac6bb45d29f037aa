package bench

import (
	"cmp"
	"slices"
	"time"
)

// Result is the result of a run. Its JSON form is meant for programs. Times in it are microseconds.
type Result struct {
	Workload  string  `json:"workload"`
	Keys      string  `json:"keys,omitempty"`
	Clients   int     `json:"clients"`
	Records   uint64  `json:"records"`
	ValueSize int     `json:"value_size"`
	Seed      uint64  `json:"seed"`
	WarmUp    float64 `json:"warm_up_seconds"`
	// Seconds is the length of the measured window.
	Seconds float64 `json:"seconds"`
	// Interrupted: the run was stopped early.
	Interrupted bool        `json:"interrupted,omitempty"`
	Operations  []Operation `json:"operations"`
	// Total is the sum over all kinds of operations.
	Total Operation `json:"total"`
	// Transactions is set only by RunTransactions.
	Transactions *Transactions `json:"transactions,omitempty"`

	merged [kinds]record
}

// Operation has the measurements of one kind of operation.
type Operation struct {
	Kind string `json:"operation"`
	// Count is the number of successes inside the window. Throughput is Count divided by the length of
	// the window.
	Count      uint64  `json:"count"`
	Throughput float64 `json:"throughput"`
	// Rows is the number of rows that scans returned. RowThroughput is that number per second.
	Rows          uint64  `json:"rows,omitempty"`
	RowThroughput float64 `json:"row_throughput,omitempty"`
	// These are the latencies of the successful operations that began inside the window.
	Mean float64 `json:"mean_us"`
	P50  int64   `json:"p50_us"`
	P95  int64   `json:"p95_us"`
	P99  int64   `json:"p99_us"`
	P999 int64   `json:"p999_us"`
	Max  int64   `json:"max_us"`
	// Errors is the number of failed operations that began inside the window. Failures lists them by
	// class.
	Errors   uint64    `json:"errors"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is a class of errors.
type Failure struct {
	Class   string `json:"class"`
	Count   uint64 `json:"count"`
	Example string `json:"example"`
}

// AllFailed reports whether operations were tried and none succeeded.
func (r *Result) AllFailed() bool { return r.Total.Count == 0 && r.Total.Errors > 0 }

func newResult(cfg Config, measured time.Duration) *Result {
	return &Result{
		Workload:  cfg.Workload.Name,
		Keys:      cfg.Workload.Keys.String(),
		Clients:   cfg.Clients,
		Records:   cfg.Records,
		ValueSize: cfg.ValueSize,
		Seed:      cfg.Seed,
		WarmUp:    cfg.WarmUp.Seconds(),
		Seconds:   measured.Seconds(),
	}
}

// finish computes the results from the merged records.
func (r *Result) finish() {
	var total record
	for kind := range r.merged {
		rec := &r.merged[kind]
		if rec.latency == nil && rec.failCount == 0 && rec.inWindow == 0 {
			continue
		}
		r.Operations = append(r.Operations, rec.operation(Kind(kind).String(), r.Seconds))
		total.merge(rec)
	}
	r.Total = total.operation("total", r.Seconds)
}

func (r *record) operation(kind string, seconds float64) Operation {
	op := Operation{Kind: kind, Count: r.inWindow, Rows: r.rows, Errors: r.failCount}
	if seconds > 0 {
		op.Throughput = float64(r.inWindow) / seconds
		op.RowThroughput = float64(r.rows) / seconds
	}
	if r.latency != nil {
		op.Mean = r.latency.Mean()
		op.Max = r.max.Microseconds()
		// A quantile is the upper end of its bucket, which can be above the exact maximum.
		quantile := func(q float64) int64 {
			return min(r.latency.ValueAtQuantile(q), max(op.Max, histogramLowest))
		}
		op.P50, op.P95, op.P99, op.P999 = quantile(50), quantile(95), quantile(99), quantile(99.9)
	}
	for class, f := range r.failures {
		op.Failures = append(op.Failures, Failure{Class: class, Count: f.count, Example: f.example})
	}
	slices.SortFunc(op.Failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class))
	})
	return op
}
