package kv

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// ErrorKind is a kind of errors, for errors.Is. It comes wrapped in an *Error, which has the
// details.
type ErrorKind string

// Error is the kind in a few words.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of errors.
const (
	// ErrNotFound: the key has no value (as of the timestamp read).
	ErrNotFound ErrorKind = "not found"
	// ErrKeyspaceNotFound: no keyspace has this name.
	ErrKeyspaceNotFound ErrorKind = "keyspace not found"
	// ErrKeyspaceExists: a keyspace of this name exists, whatever its settings are.
	ErrKeyspaceExists ErrorKind = "keyspace exists"
	// ErrConsumerNotFound: the keyspace has no consumer of this name.
	ErrConsumerNotFound ErrorKind = "consumer not found"
	// ErrInvalidArgument: the call makes no sense; nothing was changed.
	ErrInvalidArgument ErrorKind = "invalid argument"
	// ErrCrossPartition: the keys of an atomic batch have different numbers in a hash keyspace. It is
	// an ErrInvalidArgument too.
	ErrCrossPartition ErrorKind = "keys lie in different partitions"
	// ErrOutcomeUnknown: the call ended before the outcome of a write was known. It may have been
	// executed, or may yet be.
	ErrOutcomeUnknown ErrorKind = "outcome unknown"
	// ErrUnavailable: what is needed could not be reached in time.
	ErrUnavailable ErrorKind = "unavailable"
	// ErrNoQuorum: too few replicas of the partition, or members of the core, can reach one
	// another; the message says which do not answer. A write can end with ErrOutcomeUnknown as
	// well.
	ErrNoQuorum ErrorKind = "no quorum"
	// ErrOverloaded: the node had no room for the request until the context ended.
	ErrOverloaded ErrorKind = "overloaded"
	// ErrDiskFull: the partition's leader has no disk space left. Reads go on.
	ErrDiskFull ErrorKind = "disk full"
	// ErrTimestampTooOld: the timestamp lies before the keyspace's GC window; or a consumer is behind
	// by more than history is kept for it.
	ErrTimestampTooOld ErrorKind = "timestamp too old"
	// ErrTimestampInFuture: the timestamp lies in the future of the node.
	ErrTimestampInFuture ErrorKind = "timestamp in the future"
	// ErrCorruption: a node read data from its disk that does not match its checksum; or, together
	// with ErrNoQuorum, a partition is not served because replicas of it are damaged.
	ErrCorruption ErrorKind = "data corruption"
	// ErrWrongCluster: a server belongs to another cluster than the one the client first met.
	ErrWrongCluster ErrorKind = "wrong cluster"
	// ErrUnauthenticated: authentication is enabled, and the servers do not know the client's user:
	// it was given no user, or a wrong password. Nothing was done.
	ErrUnauthenticated ErrorKind = "unauthenticated"
	// ErrPermissionDenied: the client's user may not do that to this key, span or keyspace. Nothing
	// was done.
	ErrPermissionDenied ErrorKind = "permission denied"
	// ErrClosed: the client is closed.
	ErrClosed ErrorKind = "client closed"
	// ErrConflict: another transaction changed what this one has read, or holds a lock that this
	// call has waited for. Nothing was written. Update runs the transaction again by itself, until
	// its context ends.
	ErrConflict ErrorKind = "conflict with another transaction"
	// ErrTransactionAborted: the transaction was aborted by an older one, by an operator, because
	// it took too long, or because nothing was heard of its client. Nothing was written. Update
	// runs it again by itself, until its context ends.
	ErrTransactionAborted ErrorKind = "transaction aborted"
	// ErrWounded: an older transaction aborted it, because it wanted a key that this one had
	// locked. It is an ErrTransactionAborted too; Error.Transaction is the older one, and Error.Key
	// and Error.Keyspace are that key, if it has no more than 1 KiB, whatever key the call was
	// about.
	ErrWounded ErrorKind = "aborted for an older transaction"
	// ErrTransactionExpired: it was aborted because it had held locks for longer than a keyspace
	// allows, or had made no call for too long while it held them (MaxTransactionAge,
	// MaxTransactionIdle). It is an ErrTransactionAborted too.
	ErrTransactionExpired ErrorKind = "transaction expired"
	// ErrTransactionTooOld: the transaction began longer ago than the keyspace's GC window reaches.
	// Make transactions shorter.
	ErrTransactionTooOld ErrorKind = "transaction too old"
	// ErrTransactionTooLarge: the transaction writes more than 100,000 keys or 64 MiB. It is an
	// ErrInvalidArgument too.
	ErrTransactionTooLarge ErrorKind = "transaction too large"
	// ErrTransactionEnded: the transaction was used after its end: after Commit or Rollback, or
	// after the function returned to which Update or View had passed it.
	ErrTransactionEnded ErrorKind = "transaction has ended"
)

// Error is every error of this package.
type Error struct {
	// Op is the call, such as "put".
	Op string
	// Keyspace and Key are the subject of the call; empty where that does not apply.
	Keyspace string
	Key      []byte
	// Partition and Node are where it happened; 0 if it did not get that far.
	Partition uint64
	Node      uint64
	// Transaction is the id of the other transaction in a conflict, in hexadecimal; empty if there
	// was none, or it is not known: the id of a committed transaction is not, once its locks are
	// gone.
	Transaction string
	// Attempts is how often Update or View had run its function, or a transaction had been begun
	// with Begin and Again: 1 in the first attempt. It is 0 where that does not apply.
	Attempts int
	// Timestamp is the refused timestamp, and Bound the bound that it exceeds: with
	// ErrTimestampTooOld and ErrTransactionTooOld the time since which versions are kept, with
	// ErrTimestampInFuture the leader's clock. Both are zero where that does not apply, or is not
	// known.
	Timestamp, Bound Timestamp
	// Message says what happened, and Advice what to do; Advice is empty if Message says it.
	Message, Advice string

	// call is the subject of the call, if Keyspace and Key are those of Message and differ from it;
	// nil otherwise.
	call *subject
	// counted is set if Message mentions the Attempts.
	counted bool
	// sent counts how often the request was sent, if that is worth mentioning.
	sent int
	// wraps are the kinds (one of the constants above, rarely several) and the cause, such as the
	// context's error.
	wraps []error
	// outcome asks for the outcome of the commit that ended with this error; nil if that is not
	// possible.
	outcome func(context.Context) (Timestamp, error)
}

// subject is what a call is about: a keyspace, and perhaps a key of it.
type subject struct {
	keyspace string
	key      []byte
}

// Error is one sentence with everything in it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("tidemark: ")
	b.WriteString(e.Op)
	about := subject{e.Keyspace, e.Key}
	if e.call != nil {
		about = *e.call
	}
	if len(about.key) > 0 {
		b.WriteString(" " + keys.Pretty(about.key))
	}
	switch {
	case about.keyspace == "":
	case strings.HasSuffix(e.Op, "keyspace"):
		fmt.Fprintf(&b, " %q", about.keyspace)
	default:
		fmt.Fprintf(&b, " in keyspace %q", about.keyspace)
	}
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	if e.sent > 1 {
		fmt.Fprintf(&b, " [%d attempts]", e.sent)
	}
	var at []string
	if e.Attempts > 0 && !e.counted {
		at = append(at, fmt.Sprintf("attempt %d of the transaction", e.Attempts))
	}
	if e.Partition != 0 {
		at = append(at, "partition "+keys.PartitionID(e.Partition).String())
	}
	if e.Partition != 0 && e.Node != 0 {
		at = append(at, "node "+keys.NodeID(e.Node).String())
	}
	for _, ts := range []Timestamp{e.Timestamp, e.Bound} {
		if !ts.IsZero() && ts != Uncommitted() {
			at = append(at, ts.String()+" is "+ts.Time().Format("2006-01-02T15:04:05.999Z07:00"))
		}
	}
	if len(at) > 0 {
		b.WriteString(" (" + strings.Join(at, ", ") + ")")
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As find the kinds and the cause.
func (e *Error) Unwrap() []error { return e.wraps }

// NewError returns an error of the given kinds and causes, which errors.Is and errors.As find. It
// is for packages that build on a Client, or replace it in tests.
func NewError(op, keyspace, message string, kinds ...error) *Error {
	return &Error{Op: op, Keyspace: keyspace, Message: message, wraps: kinds}
}

// invalid returns an error for a mistake of the caller.
func invalid(op, keyspace string, key []byte, format string, args ...any) *Error {
	return &Error{Op: op, Keyspace: keyspace, Key: clone(key),
		Message: fmt.Sprintf(format, args...), wraps: []error{ErrInvalidArgument}}
}

// kinds maps the codes of nodes' answers to kinds, with the advice for each.
var kinds = map[kvpb.ErrorCode]struct {
	kind   error
	advice string
}{
	kvpb.ErrorCode_INVALID_ARGUMENT:    {ErrInvalidArgument, ""},
	kvpb.ErrorCode_NOT_LEADER:          {ErrUnavailable, ""},
	kvpb.ErrorCode_STALE_EPOCH:         {ErrUnavailable, ""},
	kvpb.ErrorCode_PARTITION_NOT_FOUND: {ErrUnavailable, ""},
	kvpb.ErrorCode_KEY_OUT_OF_SPAN:     {ErrUnavailable, ""},
	kvpb.ErrorCode_OVERLOADED:          {ErrOverloaded, "send less at a time, or add nodes"},
	kvpb.ErrorCode_NO_QUORUM:           {ErrNoQuorum, "bring back the nodes that are down"},
	kvpb.ErrorCode_DISK_FULL:           {ErrDiskFull, "free disk space on that node"},
	kvpb.ErrorCode_NODE_UNHEALTHY:      {ErrUnavailable, "see the node's log"},
	kvpb.ErrorCode_CLOCK_SKEW: {ErrUnavailable,
		"check the time synchronisation of the servers"},
	kvpb.ErrorCode_WRONG_CLUSTER: {ErrWrongCluster, "check the endpoints"},
	kvpb.ErrorCode_TIMESTAMP_TOO_OLD: {ErrTimestampTooOld,
		"read a later moment, or give the keyspace a GC window (--gc-window) that is longer than " +
			"the read takes"},
	kvpb.ErrorCode_TIMESTAMP_IN_FUTURE: {ErrTimestampInFuture, "read an earlier moment"},
	kvpb.ErrorCode_NOT_CLOSED:          {ErrUnavailable, ""},
	kvpb.ErrorCode_UNCERTAIN:           {ErrUnavailable, "repeat the read"},
	kvpb.ErrorCode_OUTCOME_UNKNOWN:     {ErrOutcomeUnknown, ""},
	kvpb.ErrorCode_CORRUPTION:          {ErrCorruption, damageAdvice},
	kvpb.ErrorCode_REPLICA_DAMAGED:     {ErrCorruption, damageAdvice},
	kvpb.ErrorCode_DEADLINE_EXCEEDED:   {ErrUnavailable, ""},
	kvpb.ErrorCode_LOCKED: {ErrConflict,
		"try again with more time; the lock goes within five seconds if its client is gone; " +
			"tidemark txn list shows the transaction, and tidemark txn abort ends it"},

	kvpb.ErrorCode_UNAUTHENTICATED:   {ErrUnauthenticated, noUserAdvice},
	kvpb.ErrorCode_PERMISSION_DENIED: {ErrPermissionDenied, ""},
	kvpb.ErrorCode_ACCESS_UNKNOWN:    {ErrUnavailable, ""},

	kvpb.ErrorCode_TRANSACTION_CONFLICT: {ErrConflict, "run the transaction again"},
	kvpb.ErrorCode_TRANSACTION_ABORTED:  {ErrTransactionAborted, "run the transaction again"},
	kvpb.ErrorCode_TRANSACTION_PUSHED:   {ErrConflict, "run the transaction again"},
	kvpb.ErrorCode_TRANSACTION_TOO_OLD: {ErrTransactionTooOld,
		"make the transaction shorter, or give the keyspace a longer GC window"},
}

// noUser is the answer of the etcd API, and of the administration, to a call without a user.
const (
	noUser       = "etcdserver: user name is empty"
	noUserAdvice = "open the client with a user and its password"
)

// damageAdvice says what can be done about a damaged replica.
const damageAdvice = "a partition serves as long as a majority of its replicas is intact; " +
	"without one, load a dump into a new keyspace"

// wrap turns an error of the router into an *Error.
func wrap(op, keyspace string, key []byte, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &Error{Op: op, Keyspace: keyspace, Key: clone(key)}
	var r *route.Error
	if !errors.As(err, &r) {
		e.Message, e.wraps = route.Plain(err.Error()), append(causes(err), err)
		return e
	}
	e.Partition, e.Node = uint64(r.Partition), uint64(r.Node)
	e.Timestamp, e.Bound = r.Refused, boundOf(r)
	e.Transaction = hex.EncodeToString(r.Conflict.GetTransaction())
	if len(e.Key) == 0 {
		e.Key = clone(r.Conflict.GetKey())
	}
	var parts []string
	kind := kinds[r.Code]
	if r.Code == kvpb.ErrorCode_OVERLOADED && r.Why == kvpb.ErrorCause_CAUSE_CLOCKS {
		kind = kinds[kvpb.ErrorCode_CLOCK_SKEW] // the node has room
	}
	if r.Code == kvpb.ErrorCode_OVERLOADED && r.Why == kvpb.ErrorCause_CAUSE_TOO_LARGE {
		kind.advice = "" // the message has it
	}
	if r.Code == kvpb.ErrorCode_NO_QUORUM && r.Partition == 0 {
		kind.advice = "start the core's members that do not answer, or see what keeps them from " +
			"one another"
	}
	if r.OutcomeUnknown {
		parts = append(parts,
			"the write may or may not have been executed, or may be yet; read the key to find out")
		e.wraps = append(e.wraps, ErrOutcomeUnknown)
	}
	if r.Cause != nil {
		parts = append(parts, describe(r.Cause, keyspace))
		e.wraps = append(e.wraps, causes(r.Cause)...)
		e.wraps = append(e.wraps, r.Cause)
		if kind.kind == nil && errors.Is(r.Cause, context.DeadlineExceeded) {
			e.wraps = append(e.wraps, ErrUnavailable)
		}
	}
	if r.Damaged {
		kind.advice = damageAdvice
	}
	if !r.OutcomeUnknown || kind.kind == ErrNoQuorum {
		e.Advice = kind.advice
	}
	if r.Message != "" {
		parts = append(parts, words(r, e.Advice))
	}
	// The lack of a quorum says nothing about the outcome of the write, and is worth reporting
	// beside it.
	if kind.kind != nil && (!r.OutcomeUnknown || kind.kind == ErrNoQuorum) &&
		!errors.Is(e, kind.kind) {
		e.wraps = append(e.wraps, kind.kind)
	}
	if r.Damaged && !errors.Is(e, ErrCorruption) {
		e.wraps = append(e.wraps, ErrCorruption)
	}
	if e.Message = strings.Join(parts, "; "); e.Message == "" {
		e.Message, e.Advice = e.Advice, ""
	}
	e.sent = r.Attempts
	return e
}

// boundOf returns the bound that a refused timestamp exceeds.
func boundOf(r *route.Error) Timestamp {
	switch r.Code {
	case kvpb.ErrorCode_TIMESTAMP_TOO_OLD, kvpb.ErrorCode_TRANSACTION_TOO_OLD,
		kvpb.ErrorCode_TIMESTAMP_IN_FUTURE:
		return r.Timestamp
	}
	return Timestamp{}
}

// words returns the message of a route.Error for an Error, which adds the partition, the node and
// the advice itself.
func words(r *route.Error, advice string) string {
	text := strings.TrimSuffix(r.Message, "; "+advice)
	if r.Partition != 0 {
		text = strings.TrimPrefix(text, "partition "+r.Partition.String()+": ")
		if r.Node != 0 {
			text = strings.TrimPrefix(text, "node "+r.Node.String()+": ")
		}
	}
	return text
}

// causes returns the kinds that follow from a cause.
func causes(cause error) []error {
	var out []error
	for from, to := range map[error]error{
		route.ErrClosed:       ErrClosed,
		committer.ErrClosed:   ErrClosed,
		route.ErrNoKeyspace:   ErrKeyspaceNotFound,
		route.ErrWrongCluster: ErrWrongCluster,
	} {
		if errors.Is(cause, from) {
			out = append(out, to)
		}
	}
	return out
}

func describe(cause error, keyspace string) string {
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(cause, context.Canceled):
		return "the call was cancelled"
	case errors.Is(cause, route.ErrNoKeyspace) && keyspace == "":
		return "a keyspace of the call does not exist any more: it was dropped"
	case errors.Is(cause, route.ErrNoKeyspace):
		return fmt.Sprintf(
			"there is no keyspace %q; `tidemark keyspace list` shows those there are", keyspace)
	}
	return route.Plain(cause.Error())
}

// wrapAdmin turns an error of the Cluster service into an *Error.
func wrapAdmin(op, keyspace string, err error) error {
	var r *route.Error
	var done *Error
	if err == nil || errors.As(err, &r) || errors.As(err, &done) {
		return wrap(op, keyspace, nil, err)
	}
	st, ok := status.FromError(err)
	if !ok {
		return wrap(op, keyspace, nil, err)
	}
	e := &Error{Op: op, Keyspace: keyspace, Message: route.Plain(st.Message()), wraps: []error{err}}
	switch st.Code() {
	case codes.AlreadyExists:
		e.wraps = append(e.wraps, ErrKeyspaceExists)
	case codes.NotFound:
		e.wraps = append(e.wraps, ErrKeyspaceNotFound)
	case codes.OutOfRange:
		e.wraps = append(e.wraps, ErrTimestampTooOld)
	case codes.InvalidArgument, codes.FailedPrecondition:
		if st.Message() == noUser {
			e.wraps, e.Advice = append(e.wraps, ErrUnauthenticated), noUserAdvice
			break
		}
		e.wraps = append(e.wraps, ErrInvalidArgument)
	case codes.ResourceExhausted:
		e.wraps = append(e.wraps, ErrOverloaded)
	case codes.PermissionDenied:
		e.wraps = append(e.wraps, ErrPermissionDenied)
	case codes.Unauthenticated:
		e.wraps = append(e.wraps, ErrUnauthenticated)
	default:
		e.wraps = append(e.wraps, ErrUnavailable)
	}
	return e
}
