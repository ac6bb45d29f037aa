package follow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// CoreTrouble is what servers said about the core last.
type CoreTrouble struct {
	Text     string
	NoQuorum bool
}

// Note takes in what an error says about the core, if it does. That it has no quorum is not
// forgotten for another's lesser word.
func (t *CoreTrouble) Note(err error) {
	detail, ok := wire.ErrorDetail[*clusterpb.CoreTrouble](err)
	if ok && (detail.NoQuorum || !t.NoQuorum) {
		t.Text, t.NoQuorum = wire.Reason(err), detail.NoQuorum
	}
}

// Code is the code of an error that says so.
func (t *CoreTrouble) Code() kvpb.ErrorCode {
	if t.NoQuorum {
		return kvpb.ErrorCode_NO_QUORUM
	}
	return kvpb.ErrorCode_UNKNOWN_ERROR
}

// NoTableError says that the time of a wait for the first table was up, and what the servers said.
type NoTableError struct {
	Cause   error
	Code    kvpb.ErrorCode
	Message string
}

func (e *NoTableError) Error() string { return e.Cause.Error() + ", " + e.Message }

// Unwrap gives the cause.
func (e *NoTableError) Unwrap() error { return e.Cause }

// reach is what is known about servers while there is no table.
type reach struct {
	sync.Mutex
	// answers is what each server last said or how it failed, in words.
	answers map[string]string
	// trouble is what a server said about the core.
	trouble CoreTrouble
	// failed is set when all servers were tried and none of them could be reached.
	failed  error
	changed chan struct{}
}

// UnreachableError lists the servers that were tried, and why each failed.
type UnreachableError struct {
	// Endpoints in the order given, and Reasons for each.
	Endpoints []string
	Reasons   []error
}

func (e *UnreachableError) Error() string {
	var b strings.Builder
	b.WriteString("no server could be reached:")
	for i, endpoint := range e.Endpoints {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " %s: %s", endpoint, wire.Reason(e.Reasons[i]))
	}
	return b.String()
}

// Advised says that the error says of every server what to do about it.
func (e *UnreachableError) Advised() bool {
	return !slices.ContainsFunc(e.Reasons, func(reason error) bool { return !wire.Advised(reason) })
}

// Unwrap gives the reasons.
func (e *UnreachableError) Unwrap() []error { return e.Reasons }

// ended makes the error of a wait that its context ended.
func (r *reach) ended(cause error, endpoints []string) *NoTableError {
	r.Lock()
	defer r.Unlock()
	e := &NoTableError{Cause: cause, Code: r.trouble.Code(), Message: r.trouble.Text}
	if r.trouble.Text != "" {
		return e
	}
	if len(r.answers) == 0 {
		e.Message = "waiting for the answer of " + strings.Join(endpoints, ", ")
		return e
	}
	var parts []string
	for _, address := range slices.Sorted(maps.Keys(r.answers)) {
		parts = append(parts, address+": "+r.answers[address])
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

func (r *reach) note(answers map[string]string, trouble CoreTrouble, failed error) {
	r.Lock()
	defer r.Unlock()
	r.answers, r.trouble = answers, trouble
	if r.failed == nil {
		r.failed = failed
	}
	close(r.changed)
	r.changed = make(chan struct{})
}
