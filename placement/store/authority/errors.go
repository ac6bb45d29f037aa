package authority

import "github.com/tidemarkdb/tidemark/placement/store/storepb"

// Error is the reason of a refusal. Each Error is one of the variables of this package, so that
// errors.Is distinguishes them.
type Error struct {
	// Code is the error's code in a result.
	Code storepb.Code
	text string
}

// Error implements error.
func (e *Error) Error() string { return e.text }

// The refusals, with their names in etcd.
var (
	// ErrUserEmpty means that a client is not authenticated, or that a user name is empty.
	ErrUserEmpty = refusal(storepb.Code_AUTH_USER_EMPTY, "user name is empty")
	// ErrUserNotFound says that there is no such user.
	ErrUserNotFound = refusal(storepb.Code_AUTH_USER_NOT_FOUND, "user name not found")
	// ErrUserExists says that there is such a user already.
	ErrUserExists = refusal(storepb.Code_AUTH_USER_EXISTS, "user name already exists")
	// ErrRoleEmpty says that a role has no name.
	ErrRoleEmpty = refusal(storepb.Code_AUTH_ROLE_EMPTY, "role name is empty")
	// ErrRoleNotFound says that there is no such role.
	ErrRoleNotFound = refusal(storepb.Code_AUTH_ROLE_NOT_FOUND, "role name not found")
	// ErrRoleExists says that there is such a role already.
	ErrRoleExists = refusal(storepb.Code_AUTH_ROLE_EXISTS, "role name already exists")
	// ErrRoleNotGranted says that a user does not have a role.
	ErrRoleNotGranted = refusal(storepb.Code_AUTH_ROLE_NOT_GRANTED,
		"role is not granted to the user")
	// ErrPermissionNotGiven says that a grant lacks the permission.
	ErrPermissionNotGiven = refusal(storepb.Code_AUTH_PERMISSION_NOT_GIVEN, "permission not given")
	// ErrPermissionNotGranted says that a role has no permission for exactly that range.
	ErrPermissionNotGranted = refusal(storepb.Code_AUTH_PERMISSION_NOT_GRANTED,
		"permission is not granted to the role")
	// ErrPermissionDenied says that a user may not do something.
	ErrPermissionDenied = refusal(storepb.Code_AUTH_PERMISSION_DENIED, "permission denied")
	// ErrOldRevision means that users and roles have changed since a command was accepted. The
	// command has had no effect and can be repeated.
	ErrOldRevision = refusal(storepb.Code_AUTH_OLD_REVISION,
		"users and roles have changed since the command was let in")
	// ErrRootUserMissing and ErrRootRoleMissing mean that authentication cannot be enabled: the
	// user root has to exist, and to have the role root.
	ErrRootUserMissing = refusal(storepb.Code_AUTH_ROOT_USER_MISSING, "root user does not exist")
	ErrRootRoleMissing = refusal(storepb.Code_AUTH_ROOT_ROLE_MISSING,
		"root user does not have root role")
	// ErrInvalidManagement means that a permission has no valid range, or that root would be
	// removed while authentication is enabled.
	ErrInvalidManagement = refusal(storepb.Code_AUTH_INVALID_MANAGEMENT, "invalid auth management")
)

var byCode = map[storepb.Code]*Error{}

func refusal(code storepb.Code, text string) *Error {
	e := &Error{code, text}
	byCode[code] = e
	return e
}

// ErrorOf returns the error of a code; nil if this package has no error with the code.
func ErrorOf(code storepb.Code) error {
	if e := byCode[code]; e != nil {
		return e
	}
	return nil
}
