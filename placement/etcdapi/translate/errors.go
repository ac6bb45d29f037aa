package translate

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// ErrTooLarge is the error for a request that is too large.
var ErrTooLarge = rpctypes.ErrGRPCRequestTooLarge

// Error returns the client's error for an error; nil for nil. ctx is the context of the call: if
// the error comes from a shorter context, its end is a timeout.
func Error(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if answer := authError(err); answer != nil {
		return answer
	}
	for _, known := range []struct{ ours, etcds error }{
		{store.ErrCompacted, rpctypes.ErrGRPCCompacted},
		{store.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
		{store.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
		{store.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
		{store.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
		{store.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey},
		{store.ErrClosed, rpctypes.ErrGRPCStopped},
		{store.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
		{store.ErrCorrupt, rpctypes.ErrGRPCCorrupt},
	} {
		if errors.Is(err, known.ours) {
			return known.etcds
		}
	}
	if errors.Is(err, store.ErrOutcomeUnknown) {
		// INVARIANT: a command that may take effect has no answer with the code Canceled or
		// DeadlineExceeded: etcd's client for Go repeats every such call, also one that changes
		// something, as long as its own context has not ended. The context of a call ends here when
		// the server closes, too.
		return rpctypes.ErrGRPCTimeout
	}
	if ended := ctx.Err(); ended != nil {
		return status.FromContextError(ended).Err()
	}
	var answer interface{ GRPCStatus() *status.Status }
	var notLeader *store.NotLeaderError
	switch {
	case errors.As(err, &answer):
		return answer.GRPCStatus().Err()
	case errors.Is(err, store.ErrOverloaded):
		return rpctypes.ErrGRPCRequestTooManyRequests
	case errors.Is(err, watch.ErrTooMany):
		return status.Error(codes.ResourceExhausted, "etcdserver: "+err.Error())
	case errors.Is(err, store.ErrOldMembers):
		return status.Error(codes.FailedPrecondition, "etcdserver: "+err.Error())
	case errors.Is(err, store.ErrImporting):
		return status.Error(codes.Unavailable, "etcdserver: "+err.Error())
	case errors.As(err, &notLeader):
		return NoLeader(notLeader.Leader == 0)
	case errors.Is(err, store.ErrTooLarge):
		return status.Error(codes.ResourceExhausted, "etcdserver: "+err.Error())
	case errors.Is(err, store.ErrInvalid):
		return status.Error(codes.InvalidArgument, "etcdserver: "+err.Error())
	case errors.Is(err, errors.ErrUnsupported):
		return status.Error(codes.Unimplemented, "etcdserver: "+err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return rpctypes.ErrGRPCTimeout
	}
	return status.Error(codes.Unknown, "etcdserver: "+err.Error())
}

// ChangeError is Error for a call that may have changed something other than the store's keys, so
// that its error must not make etcd's client repeat it.
func ChangeError(ctx context.Context, err error) error {
	switch answer := Error(ctx, err); status.Code(answer) {
	case codes.Canceled, codes.DeadlineExceeded:
		return rpctypes.ErrGRPCTimeout
	default:
		return answer
	}
}

// NoLeader returns the error of something that failed because no member leads, or another member
// than before.
func NoLeader(none bool) error {
	if none {
		return rpctypes.ErrGRPCNoLeader
	}
	return rpctypes.ErrGRPCLeaderChanged
}

var authErrors = map[*authority.Error]error{
	authority.ErrUserEmpty:            rpctypes.ErrGRPCUserEmpty,
	authority.ErrUserNotFound:         rpctypes.ErrGRPCUserNotFound,
	authority.ErrUserExists:           rpctypes.ErrGRPCUserAlreadyExist,
	authority.ErrRoleEmpty:            rpctypes.ErrGRPCRoleEmpty,
	authority.ErrRoleNotFound:         rpctypes.ErrGRPCRoleNotFound,
	authority.ErrRoleExists:           rpctypes.ErrGRPCRoleAlreadyExist,
	authority.ErrRoleNotGranted:       rpctypes.ErrGRPCRoleNotGranted,
	authority.ErrPermissionNotGiven:   rpctypes.ErrGRPCPermissionNotGiven,
	authority.ErrPermissionNotGranted: rpctypes.ErrGRPCPermissionNotGranted,
	authority.ErrPermissionDenied:     rpctypes.ErrGRPCPermissionDenied,
	authority.ErrOldRevision:          rpctypes.ErrGRPCAuthOldRevision,
	authority.ErrRootUserMissing:      rpctypes.ErrGRPCRootUserNotExist,
	authority.ErrRootRoleMissing:      rpctypes.ErrGRPCRootRoleNotExist,
	authority.ErrInvalidManagement:    rpctypes.ErrGRPCInvalidAuthMgmt,
}

// authError returns the client's error for an error of package authority; nil for other errors.
func authError(err error) error {
	var of *authority.Error
	if errors.As(err, &of) {
		return authErrors[of]
	}
	return nil
}
