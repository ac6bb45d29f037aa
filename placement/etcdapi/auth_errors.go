package etcdapi

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
)

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

// authError is what a client is told of an error of package authority; nil if it is none.
func authError(err error) error {
	var of *authority.Error
	if errors.As(err, &of) {
		return authErrors[of]
	}
	return nil
}
