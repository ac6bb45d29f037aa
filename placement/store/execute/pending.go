package execute

import (
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// ID identifies a command: Origin is the process that made it, Request its number in that process.
type ID struct{ Origin, Request uint64 }

// pending is a proposed command whose outcome this member does not know yet. Its caller may have
// given up.
type pending struct {
	// term is the term in which the command was proposed, here or at another member.
	term uint64
	// size is the command's share of the budget, and reserved the bytes that it has reserved of the
	// quota.
	size     int
	reserved uint64
	// format is the command's format, if it is higher than the format that this version would give
	// the command.
	format byte
	// survives is set if the caller waits beyond the end of the leadership, until the log shows the
	// outcome (execute.go).
	survives bool
	// group is the entry that the command shares; nil if it has its own entry, or is not proposed
	// yet.
	group *entryGroup
	// outcome has capacity 1, so that sending the outcome never blocks, even if the caller has
	// gone.
	outcome chan outcome
	// over closes when the outcome is known, for other calls that wait for this command
	// (proposedBefore). applied, which is set before, says whether the command was applied.
	over    chan struct{}
	applied bool
}

// outcome is the outcome of a command: a result or an error.
type outcome struct {
	result *storepb.Result
	err    error
}

// Known is a command whose outcome is known, but not yet sent to its caller.
type Known struct {
	*pending
	outcome outcome
}

func newPending(size int) *pending {
	return &pending{size: size, outcome: make(chan outcome, 1), over: make(chan struct{})}
}
