package calm

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// Operation is a call that has ended.
type Operation struct {
	// Kind is the kind of the call, such as "put". Workload is the workload that made the call.
	Kind, Workload string
	// Began is the time of the call.
	Began time.Time
	// Patience is the time limit of the call. It is 0 if there was no limit.
	Patience time.Duration
	// Attempts is the number of attempts of the call's requests, or of its function.
	Attempts int
	// Part is true if the operation is a part of a transaction that the caller itself retries
	// (Client.Begin).
	Part bool
	Err  error
}

// end is the outcome of an operation.
type end int

const (
	succeeded end = iota
	failed
	// conflicted: the operation ended with an error that the API promises. See Promised.
	conflicted
	// hasty: the operation had too little time. See Enough.
	hasty
)

// Enough is a time limit that is sufficient in calm. If an operation had a lower limit and ended
// because of it, the operation counts neither as a failure nor as a success. In calm a put takes
// some milliseconds, and a commit with commit wait takes half a second. An operation that needs
// more time than Enough is too slow. (Some workloads give up after milliseconds on purpose.)
//
// An operation that may have to wait for several such commits of others, one after the other, needs
// more time. Its workload gives it more, and then it has to succeed.
const Enough = 2 * time.Second

// Promised reports whether the API promises the error of an operation, so that the error is no
// failure. The promised errors are:
//
//   - ErrNotFound of a get, because the absence of a key is an answer.
//   - ErrConflict and ErrTransactionAborted (ErrWounded is one too) of the parts of a transaction
//     that was begun with Client.Begin or Txn.Again: get, get for update, scan, commit. The caller
//     must retry the transaction.
//
// Update and View retry by themselves. A conflict that is left at their time limit means that they
// were starved, and the API promises no such error. A compare-and-swap that does not swap returns
// no error.
func Promised(o Operation) bool {
	switch {
	case errors.Is(o.Err, kv.ErrOutcomeUnknown):
		return false
	case errors.Is(o.Err, kv.ErrNotFound):
		return true
	}
	return o.Part && (errors.Is(o.Err, kv.ErrConflict) ||
		errors.Is(o.Err, kv.ErrTransactionAborted))
}

// judge returns the outcome of an operation.
func judge(o Operation, took time.Duration) end {
	switch {
	case o.Err == nil || errors.Is(o.Err, kv.ErrNotFound):
		return succeeded
	case Promised(o):
		return conflicted
	case o.Patience > 0 && o.Patience < Enough && (took >= o.Patience*4/5 ||
		errors.Is(o.Err, context.DeadlineExceeded)):
		// A server gives up after nine tenths of the time limit, so that its answer arrives within the
		// limit.
		return hasty
	}
	return failed
}
