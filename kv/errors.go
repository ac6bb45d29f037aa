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
	"github.com/tidemarkdb/tidemark/rpc/outcome"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// ErrorKind is a kind of errors, for errors.Is. The calls of this package return it wrapped in an
// *Error with the details.
type ErrorKind string

// Error returns the kind in a few words.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of errors.
const (
	// ErrNotFound: the key has no value at the timestamp of the read.
	ErrNotFound ErrorKind = "not found"
	// ErrKeyspaceNotFound: no keyspace has this name.
	ErrKeyspaceNotFound ErrorKind = "keyspace not found"
	// ErrKeyspaceExists: a keyspace of this name exists, whatever its settings are.
	ErrKeyspaceExists ErrorKind = "keyspace exists"
	// ErrConsumerNotFound: the keyspace has no consumer of this name.
	ErrConsumerNotFound ErrorKind = "consumer not found"
	// ErrInvalidArgument: the call is not valid. Nothing was changed.
	ErrInvalidArgument ErrorKind = "invalid argument"
	// ErrCrossPartition: the keys of an atomic batch have different hash numbers in a hash keyspace.
	// It is an ErrInvalidArgument too.
	ErrCrossPartition ErrorKind = "keys lie in different partitions"
	// ErrOutcomeUnknown: the call ended before the outcome of a write was known. The write may have
	// been executed, or may still be executed.
	ErrOutcomeUnknown ErrorKind = "outcome unknown"
	// ErrUnavailable: a server that the call needs could not be reached in time.
	ErrUnavailable ErrorKind = "unavailable"
	// ErrNoQuorum: too few replicas of the partition, or members of the core, can reach one another.
	// The message says which of them do not answer. The error of a write can be an ErrOutcomeUnknown
	// as well.
	ErrNoQuorum ErrorKind = "no quorum"
	// ErrOverloaded: the node had no capacity for the request until the context ended.
	ErrOverloaded ErrorKind = "overloaded"
	// ErrQuota: the keyspace has reached one of its quotas. With a quota of stored bytes, a write that
	// adds data was refused, and reads and deletions still work. With a quota of requests or of bytes
	// a second, requests were refused until the context ended; the error is an ErrOverloaded too.
	ErrQuota ErrorKind = "quota reached"
	// ErrDiskFull: the partition's leader has no disk space left. Reads still work.
	ErrDiskFull ErrorKind = "disk full"
	// ErrTimestampTooOld: the timestamp is older than the keyspace's GC window allows, or a consumer
	// is behind by more than the time for which history is kept for it.
	ErrTimestampTooOld ErrorKind = "timestamp too old"
	// ErrTimestampInFuture: the timestamp is in the future of the node.
	ErrTimestampInFuture ErrorKind = "timestamp in the future"
	// ErrCorruption: a node read data from its disk that does not match its checksum. Together with
	// ErrNoQuorum: a partition is not served because some of its replicas are damaged.
	ErrCorruption ErrorKind = "data corruption"
	// ErrWrongCluster: a server belongs to another cluster than the one the client first met.
	ErrWrongCluster ErrorKind = "wrong cluster"
	// ErrUnauthenticated: authentication is enabled, and the servers do not know the client's user:
	// the client has no user, or a wrong password. Nothing was done.
	ErrUnauthenticated ErrorKind = "unauthenticated"
	// ErrPermissionDenied: the client's user has no permission for this operation on this key, span or
	// keyspace. Nothing was done.
	ErrPermissionDenied ErrorKind = "permission denied"
	// ErrClosed: the client is closed.
	ErrClosed ErrorKind = "client closed"
	// ErrConflict: another transaction changed data that this one has read, or holds a lock that this
	// call has waited for. Nothing was written. Update runs the transaction again automatically, until
	// its context ends.
	ErrConflict ErrorKind = "conflict with another transaction"
	// ErrTransactionAborted: the transaction was aborted by an older transaction or by an operator, or
	// because it took too long, or because its client was not heard. Nothing was written. Update runs
	// the transaction again automatically, until its context ends.
	ErrTransactionAborted ErrorKind = "transaction aborted"
	// ErrWounded: an older transaction aborted this one, because it needed a key that this one had
	// locked. It is an ErrTransactionAborted too. Error.Transaction is the older transaction.
	// Error.Key and Error.Keyspace are the needed key, even if the call was about another key. They
	// are set if the key has at most 1 KiB.
	ErrWounded ErrorKind = "aborted for an older transaction"
	// ErrTransactionExpired: the transaction was aborted because it had held locks for longer than a
	// keyspace allows, or had made no call for too long while it held them (MaxTransactionAge,
	// MaxTransactionIdle). It is an ErrTransactionAborted too.
	ErrTransactionExpired ErrorKind = "transaction expired"
	// ErrTransactionTooOld: the transaction began longer ago than the keyspace's GC window. Make
	// transactions shorter.
	ErrTransactionTooOld ErrorKind = "transaction too old"
	// ErrTransactionTooLarge: the transaction writes more than 100,000 keys or 64 MiB. It is an
	// ErrInvalidArgument too.
	ErrTransactionTooLarge ErrorKind = "transaction too large"
	// ErrTransactionEnded: the transaction was used after its end. It ends with Commit or Rollback, or
	// when the function of Update or View returns.
	ErrTransactionEnded ErrorKind = "transaction has ended"
)

// Error is the type of all errors of this package.
type Error struct {
	// Op is the call, such as "put".
	Op string
	// Keyspace and Key are the subject of the call. They are empty if the call has none.
	Keyspace string
	Key      []byte
	// Partition and Node say where the error occurred. They are 0 if the call did not reach a
	// partition or node.
	Partition uint64
	Node      uint64
	// Transaction is the id of the other transaction in a conflict, in hexadecimal. It is empty if
	// there was no other transaction, or if its id is not known. The id of a committed transaction is
	// not known after its locks are gone.
	Transaction string
	// Attempts is the number of times that Update or View had run its function, or that a transaction
	// had been begun with Begin and Again. It is 1 in the first attempt, and 0 for other calls.
	Attempts int
	// Timestamp is the refused timestamp, and Bound the limit that it exceeds. With ErrTimestampTooOld
	// and ErrTransactionTooOld, the limit is the time since which versions are kept. With
	// ErrTimestampInFuture, it is the leader's clock. Both are zero for other errors, or if they are
	// not known.
	Timestamp, Bound Timestamp
	// Message says what happened, and Advice says what to do. Advice is empty if Message says it.
	Message, Advice string

	// call is the subject of the call, if Keyspace and Key differ from it because they describe
	// Message. Otherwise it is nil.
	call *subject
	// counted is set if Message mentions the number of attempts.
	counted bool
	// sent is the number of times that the request was sent, if that is worth mentioning.
	sent int
	// wraps has the kinds (one of the constants above, rarely several) and the cause, such as the
	// context's error.
	wraps []error
	// outcome asks for the outcome of the commit that ended with this error. It is nil if that is not
	// possible.
	outcome func(context.Context) (Timestamp, error)
}

// subject is the subject of a call: a keyspace, and perhaps a key in it.
type subject struct {
	keyspace string
	key      []byte
}

// Error returns everything in one sentence.
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
	kvpb.ErrorCode_QUOTA_EXCEEDED:      {ErrQuota, ""},
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

// These are the answers of the etcd API, and of the administration, to a call without a user.
const (
	noUser       = "etcdserver: user name is empty"
	noUserAdvice = "open the client with a user and its password"
)

// damageAdvice says what to do about a damaged replica.
const damageAdvice = "a partition serves as long as a majority of its replicas is intact; " +
	"without one, load a dump into a new keyspace"

// wrap converts an error of the router to an *Error.
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
		kind = kinds[kvpb.ErrorCode_CLOCK_SKEW] // the node is not overloaded: a clock is wrong
	}
	if r.Code == kvpb.ErrorCode_OVERLOADED && r.Why == kvpb.ErrorCause_CAUSE_TOO_LARGE {
		kind.advice = "" // the message has it
	}
	quota := r.Code == kvpb.ErrorCode_OVERLOADED && r.Why == kvpb.ErrorCause_CAUSE_QUOTA
	if quota {
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
	// The lack of a quorum does not tell the outcome of the write, and is reported in addition.
	if kind.kind != nil && (!r.OutcomeUnknown || kind.kind == ErrNoQuorum) &&
		!errors.Is(e, kind.kind) {
		e.wraps = append(e.wraps, kind.kind)
		if quota {
			e.wraps = append(e.wraps, ErrQuota)
		}
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

// boundOf returns the limit that a refused timestamp exceeds.
func boundOf(r *route.Error) Timestamp {
	switch r.Code {
	case kvpb.ErrorCode_TIMESTAMP_TOO_OLD, kvpb.ErrorCode_TRANSACTION_TOO_OLD,
		kvpb.ErrorCode_TIMESTAMP_IN_FUTURE:
		return r.Timestamp
	}
	return Timestamp{}
}

// words returns the message of a route.Error for an Error. The Error itself adds the partition, the
// node and the advice.
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

// causes returns the kinds for a cause.
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

// wrapAdmin converts an error of the Cluster service to an *Error.
func wrapAdmin(op, keyspace string, err error) error {
	var r *route.Error
	var done *Error
	switch {
	case err == nil, errors.As(err, &done):
		return err
	case errors.As(err, &r):
		wrapped := wrap(op, keyspace, nil, err)
		if outcome.IsUnknown(err) && errors.As(wrapped, &done) {
			done.Message, done.Advice = done.Message+"; "+outcome.Advice, ""
			done.wraps = append([]error{ErrOutcomeUnknown}, done.wraps...)
		}
		return wrapped
	case outcome.IsUnknown(err):
		return &Error{Op: op, Keyspace: keyspace, Message: route.Plain(status.Convert(err).Message()),
			wraps: []error{ErrOutcomeUnknown, err}}
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

// failureOf says how a call has failed, for its span: without keys, which messages of errors have.
func failureOf(err error) string {
	var kind ErrorKind
	switch {
	case err == nil:
		return ""
	case errors.As(err, &kind):
		return kind.Error()
	}
	return "failed"
}
