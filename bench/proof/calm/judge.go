package calm

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// Operation is a call that has ended.
type Operation struct {
	// Kind is what was called, such as "put"; Workload is the workload that called.
	Kind, Workload string
	// Began is when it was called.
	Began time.Time
	// Patience is how long it might take; 0 if there was no limit.
	Patience time.Duration
	// Attempts is how often its requests, or its function, were tried.
	Attempts int
	// Part says that it is a part of a transaction that the caller runs again by itself
	// (Client.Begin).
	Part bool
	Err  error
}

// end is how an operation ended.
type end int

const (
	succeeded end = iota
	failed
	// conflicted is an error that the API promises: see Promised.
	conflicted
	// hasty is a lack of patience: see Enough.
	hasty
)

// Enough is the patience that suffices in calm: what had less and ended because its time was over
// is no failure, nor is it a success. A put takes some milliseconds there, and a commit that waits
// for clocks half a second; what takes longer than this is wrong. (Some workloads give up after
// milliseconds on purpose.)
//
// What may have to wait for such commits of others, one after the other, needs more: its workload
// gives it that, and then it has to succeed.
const Enough = 2 * time.Second

// Promised says whether the API promises an error, so that it is none. These are all:
//
//   - ErrNotFound of a get: that there is nothing is an answer.
//   - ErrConflict and ErrTransactionAborted (which ErrWounded is too) of the parts of a transaction
//     that was begun with Client.Begin or Txn.Again: get, get for update, scan, commit. The caller
//     is to run it again.
//
// Update and View run again by themselves; a conflict that is left when their time is over says
// that they were starved, which nothing promises. A compare-and-swap that does not swap has no
// error.
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

// judge says how an operation ended.
func judge(o Operation, took time.Duration) end {
	switch {
	case o.Err == nil || errors.Is(o.Err, kv.ErrNotFound):
		return succeeded
	case Promised(o):
		return conflicted
	case o.Patience > 0 && o.Patience < Enough && (took >= o.Patience*4/5 ||
		errors.Is(o.Err, context.DeadlineExceeded)):
		// A server gives up when nine tenths of the time are over, so that its answer comes in
		// time.
		return hasty
	}
	return failed
}
