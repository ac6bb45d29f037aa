package route

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

var (
	// ErrClosed is returned by a Sender that was closed.
	ErrClosed = lifetime.ErrClosed
	// ErrNoKeyspace means that the keyspace is not in the partition table any more.
	ErrNoKeyspace = errors.New("the keyspace does not exist")
	// ErrWrongCluster means that a server belongs to another cluster than the one this Sender first
	// met.
	ErrWrongCluster = table.ErrWrongCluster
)

// Error is how a request ended that was not answered with a result.
type Error struct {
	// Code is the last answer's code; UNKNOWN_ERROR when there was no answer.
	Code kvpb.ErrorCode
	// Why says more about Code, if the node did.
	Why kvpb.ErrorCause
	// Message is what the node said, or what the sender was waiting for: a sentence for people.
	Message string
	// Keyspace is which one the request was for; 0 when it was for none, or for several partitions
	// at once.
	Keyspace keys.KeyspaceID
	// Partition and Node are where it happened; 0 when it did not get that far.
	Partition keys.PartitionID
	Node      keys.NodeID
	// Attempts is how often the request was sent.
	Attempts int
	// OutcomeUnknown says that an attempt of the write may have been executed, and that there is no
	// definite answer.
	OutcomeUnknown bool
	// Damaged says that nodes answered that their replica is damaged, and that the partition is not
	// served because of it, too.
	Damaged bool
	// Timestamp and Refused are as in kvpb.Error: with UNCERTAIN the version that was met and the
	// moment of the read, with TRANSACTION_PUSHED the timestamp to be above, with what is too old
	// or in the future the bound and what lies beyond it.
	Timestamp, Refused hlc.Timestamp
	// Conflict is what was in a transaction's way, or in the way of a write that waited for a lock;
	// nil if nothing was.
	Conflict *kvpb.Conflict
	// Cause is why the sender stopped, such as the context's error, ErrClosed, ErrNoKeyspace; nil
	// when an answer ended it.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.OutcomeUnknown {
		b.WriteString("the write may or may not have been executed: ")
	}
	if e.Cause != nil {
		b.WriteString(Plain(e.Cause.Error()))
	}
	if e.Message != "" {
		if e.Cause != nil {
			b.WriteString(", ")
		}
		b.WriteString(e.Message)
	}
	var at []string
	if e.Partition != 0 {
		at = append(at, "partition "+e.Partition.String())
	}
	if e.Node != 0 {
		at = append(at, "node "+e.Node.String())
	}
	if e.Attempts > 1 {
		at = append(at, fmt.Sprintf("%d attempts", e.Attempts))
	}
	if len(at) > 0 {
		b.WriteString(" (" + strings.Join(at, ", ") + ")")
	}
	return b.String()
}

// Plain puts words for people in the place of the context package's.
func Plain(text string) string { return plain.Replace(text) }

var plain = strings.NewReplacer(
	context.Canceled.Error(), "the call was cancelled",
	context.DeadlineExceeded.Error(), "timed out",
)

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }
