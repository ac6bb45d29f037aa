package etcdapi

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Auth implements coordpb.ImportServer. It comes before the first step, because users and roles
// cannot be changed during an import. Users and roles are added one by one, so an interrupted call
// can be repeated.
func (s *importServer) Auth(
	ctx context.Context, r *coordpb.ImportedAuth,
) (*coordpb.ImportAuthResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	if err := s.mayImportAuth(ctx, r); err != nil {
		return nil, err
	}
	for _, role := range r.Roles {
		add := &storepb.AuthChange{Change: &storepb.AuthChange_RoleAdd{
			RoleAdd: &storepb.RoleAdd{Name: role.GetName()}}}
		if err := s.addImported(ctx, authority.ErrRoleExists, add); err != nil {
			return nil, err
		}
		for _, p := range role.GetPermissions() {
			grant := &storepb.AuthChange{Change: &storepb.AuthChange_GrantPermission{
				GrantPermission: &storepb.RolePermission{Role: role.Name,
					Permission: &storepb.Permission{Type: storepb.Permission_Type(p.GetType()),
						Key: p.GetKey(), RangeEnd: p.GetRangeEnd()}}}}
			if err := s.addImported(ctx, nil, grant); err != nil {
				return nil, err
			}
		}
	}
	for _, u := range r.Users {
		add := &storepb.AuthChange{Change: &storepb.AuthChange_UserAdd{
			UserAdd: &storepb.UserAdd{Name: u.GetName(), Hash: u.GetHash(),
				NoPassword: len(u.GetHash()) == 0}}}
		if err := s.addImported(ctx, authority.ErrUserExists, add); err != nil {
			return nil, err
		}
		for _, role := range u.GetRoles() {
			grant := &storepb.AuthChange{Change: &storepb.AuthChange_GrantRole{
				GrantRole: &storepb.UserRole{User: u.Name, Role: role}}}
			if err := s.addImported(ctx, nil, grant); err != nil {
				return nil, err
			}
		}
	}
	return &coordpb.ImportAuthResponse{}, nil
}

// addImported makes one change. there is the error which says that the change was made before.
func (s *importServer) addImported(
	ctx context.Context, there error, change *storepb.AuthChange,
) error {
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	_, err := s.Store.Execute(limited, store.ChangeAuth(nil, change))
	if err == nil || there != nil && errors.Is(err, there) {
		return nil
	}
	return translate.Error(ctx, err)
}

// MayImport returns why a state with these users and roles cannot be imported; nil if it can be:
// the store has no keys and no leases, and no other users and roles, and authentication is not
// enabled.
func (s *Services) MayImport(ctx context.Context, r *coordpb.ImportedAuth) error {
	return s.Import.(*importServer).mayImportAuth(ctx, r) // New has made it
}

// mayImportAuth returns why users and roles cannot be imported; nil if they can.
func (s *importServer) mayImportAuth(ctx context.Context, r *coordpb.ImportedAuth) error {
	if err := s.Confirm(ctx); err != nil {
		return err
	}
	keys, release, err := s.kv.readRange(ctx, nil, &storepb.Range{Key: []byte{0}, RangeEnd: []byte{0},
		CountOnly: true})
	defer release()
	if err != nil {
		return err
	}
	leases, err := s.Store.LeasesAs(ctx, nil)
	if err != nil {
		return translate.Error(ctx, err)
	}
	if keys.Count > 0 || len(leases) > 0 {
		return status.Errorf(codes.FailedPrecondition, "%v: it has %d keys and %d leases",
			store.ErrNotEmpty, keys.Count, len(leases))
	}
	state := s.Store.Authority()
	others := func(have []string, imported func(name string) bool) error {
		for _, name := range have {
			if !imported(name) {
				return status.Errorf(codes.FailedPrecondition, "there are users and roles already, such "+
					"as %q: delete them, or leave those of the file out", name)
			}
		}
		return nil
	}
	if state.Enabled() {
		return status.Error(codes.FailedPrecondition, "authentication is enabled here: leave the "+
			"users and roles of the file out, or disable it before the import")
	}
	return errors.Join(others(state.Users(), func(name string) bool {
		return slices.ContainsFunc(r.Users,
			func(u *coordpb.ImportedUser) bool { return u.GetName() == name })
	}), others(state.Roles(), func(name string) bool {
		return slices.ContainsFunc(r.Roles,
			func(x *coordpb.ImportedRole) bool { return x.GetName() == name })
	}))
}
