package command

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var (
	// ErrNotLeader matches a NotLeaderError.
	ErrNotLeader = errors.New("this member does not lead the core")
	// ErrOutcomeUnknown means that a command was proposed, and may or may not take effect.
	ErrOutcomeUnknown = errors.New("the outcome of the command is unknown")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("the core's store is closed")
	// ErrCompacted matches a CompactedError.
	ErrCompacted = errors.New("the revision has been compacted")
	// ErrFutureRevision means that the requested revision does not exist yet.
	ErrFutureRevision = errors.New("the revision lies in the future")
	// ErrLeaseNotFound says that a lease does not exist, or ran out.
	ErrLeaseNotFound = errors.New("the lease does not exist")
	// ErrLeaseExists says that a lease of that id exists already.
	ErrLeaseExists = errors.New("the lease exists already")
	// ErrKeyNotFound says that a put that keeps the value or the lease of its key found no such key.
	ErrKeyNotFound = errors.New("the key does not exist")
	// ErrDuplicateKey says that a transaction would write a key twice.
	ErrDuplicateKey = errors.New("the transaction writes a key twice")
	// ErrInvalid says that a command is malformed.
	ErrInvalid = errors.New("the command is malformed")
	// ErrTooLarge says that a command exceeds a limit.
	ErrTooLarge = errors.New("the command is too large")
	// ErrOverloaded means that too many commands wait for the core, and that the caller's was not
	// proposed.
	ErrOverloaded = errors.New("the core has too much to do")
	// ErrSession means that the session no longer knows whether the command was applied before.
	ErrSession = errors.New("the session cannot take the command")
	// ErrMembersChanged means that the core's members have changed since the command was made.
	ErrMembersChanged = errors.New("the core's members have changed meanwhile")
	// ErrImporting means that an import is running, during which keys and leases cannot be read or
	// written.
	ErrImporting = errors.New("an import is under way: wait until it has ended, or abandon it")
	// ErrNotEmpty means that an import was refused because the store has keys or leases.
	ErrNotEmpty = errors.New("only an empty store can import")
	// ErrOldMembers says that a command was not proposed, because a member may run a version that
	// does not know such commands, and would stop at it.
	ErrOldMembers = errors.New("not all members of the core are known to run a version that can do " +
		"this: upgrade all of them, and bring back or remove those that do not answer")
	// ErrNoSpace means that an alarm NO_SPACE is raised, or that the command would raise it.
	ErrNoSpace = errors.New("there is no room: a member's disk is nearly full, or the quota is " +
		"used up")
	// ErrCorrupt means that an alarm for differing members is raised.
	ErrCorrupt = errors.New("an alarm says that members differ")
)

// NotLeaderError means that the command was not proposed, since this member does not lead. It names
// the leader, if known.
type NotLeaderError struct {
	// Leader is 0 if no leader is known.
	Leader keys.ReplicaID
	Term   uint64
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return ErrNotLeader.Error() + ", and no leader is known"
	}
	return fmt.Sprintf("%v: %s leads at term %d", ErrNotLeader, e.Leader, e.Term)
}

// Is makes errors.Is(err, ErrNotLeader) true.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// CompactedError names the lowest readable revision.
type CompactedError struct{ Revision uint64 }

func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v: the history starts at revision %d", ErrCompacted, e.Revision)
}

// Is makes errors.Is(err, ErrCompacted) true.
func (e *CompactedError) Is(target error) bool { return target == ErrCompacted }

// ErrorOf returns the error for the code of a result; nil for OK.
func ErrorOf(r *storepb.Result) error {
	if err := authority.ErrorOf(r.Code); err != nil {
		return err
	}
	var base error
	switch r.Code {
	case storepb.Code_OK:
		return nil
	case storepb.Code_COMPACTED:
		return &CompactedError{Revision: r.Compacted}
	case storepb.Code_FUTURE_REVISION:
		base = ErrFutureRevision
	case storepb.Code_LEASE_NOT_FOUND:
		base = ErrLeaseNotFound
	case storepb.Code_LEASE_EXISTS:
		base = ErrLeaseExists
	case storepb.Code_KEY_NOT_FOUND:
		base = ErrKeyNotFound
	case storepb.Code_DUPLICATE_KEY:
		base = ErrDuplicateKey
	case storepb.Code_TOO_LARGE:
		base = ErrTooLarge
	case storepb.Code_SESSION_UNKNOWN, storepb.Code_SESSION_FORGOTTEN, storepb.Code_SESSION_FULL:
		base = ErrSession
	case storepb.Code_MEMBERS_CHANGED:
		base = ErrMembersChanged
	case storepb.Code_IMPORTING:
		base = ErrImporting
	case storepb.Code_NOT_EMPTY:
		base = ErrNotEmpty
	case storepb.Code_NO_SPACE:
		base = ErrNoSpace
	case storepb.Code_CORRUPT:
		base = ErrCorrupt
	case storepb.Code_OLD_MEMBERS:
		base = ErrOldMembers
	default:
		base = ErrInvalid
	}
	if r.Message == "" {
		return base
	}
	return fmt.Errorf("%w: %s", base, r.Message)
}

// Refusal returns an encoded result for an error that says why nothing was proposed, and other
// errors unchanged.
func Refusal(err error) ([]byte, error) {
	result := &storepb.Result{Message: err.Error()}
	switch compacted := (*CompactedError)(nil); {
	case errors.As(err, &compacted):
		result.Code, result.Compacted = storepb.Code_COMPACTED, compacted.Revision
	case errors.Is(err, ErrFutureRevision):
		result.Code = storepb.Code_FUTURE_REVISION
	case errors.Is(err, ErrDuplicateKey):
		result.Code = storepb.Code_DUPLICATE_KEY
	case errors.Is(err, ErrInvalid):
		result.Code = storepb.Code_INVALID
	case errors.Is(err, ErrImporting):
		result.Code = storepb.Code_IMPORTING
	case errors.Is(err, ErrTooLarge):
		result.Code = storepb.Code_TOO_LARGE
	case errors.Is(err, ErrNoSpace):
		result.Code = storepb.Code_NO_SPACE
	case errors.Is(err, ErrCorrupt):
		result.Code = storepb.Code_CORRUPT
	case errors.Is(err, ErrOldMembers):
		result.Code = storepb.Code_OLD_MEMBERS
	case errors.Is(err, ErrOverloaded):
		result.Code = storepb.Code_OVERLOADED
	default:
		return nil, err
	}
	return proto.Marshal(result)
}

// Refuse sets the reason why a command has no effect.
func Refuse(result *storepb.Result, code storepb.Code, format string, args ...any) {
	result.Code, result.Message = code, fmt.Sprintf(format, args...)
}
