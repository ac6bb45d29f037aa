package users

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// openEnd as the end of a range means no end.
const openEnd = "\x00"

// permissionsServer changes and returns the roles' rights to the data of keyspaces. It translates
// names of keyspaces: only ids are stored.
type permissionsServer struct {
	coordpb.UnimplementedPermissionsServer
	*Server
}

// Permissions returns the service Permissions.
func (s *Server) Permissions() coordpb.PermissionsServer { return &permissionsServer{Server: s} }

// Grant implements coordpb.PermissionsServer.
func (s *permissionsServer) Grant(
	ctx context.Context, r *coordpb.GrantRequest,
) (*coordpb.GrantResponse, error) {
	p, err := s.permission(ctx, r.Keys, r.Rights)
	if err != nil {
		return nil, err
	}
	if p.Rights == 0 {
		return nil, status.Error(codes.InvalidArgument, "no right is named")
	}
	if p.Rights&authority.KeyspaceAdmin != 0 && (len(r.Keys.Start) > 0 || len(r.Keys.End) > 0) {
		return nil, status.Error(codes.InvalidArgument,
			"the right to administer is for a whole keyspace, and not for some of its keys")
	}
	_, err = s.change(ctx, nil, &storepb.AuthChange{Change: &storepb.AuthChange_GrantKeyspace{
		GrantKeyspace: &storepb.KeyspaceGrant{Role: r.Role, Permission: p}}})
	if err != nil {
		return nil, err
	}
	return &coordpb.GrantResponse{}, nil
}

// Revoke implements coordpb.PermissionsServer.
func (s *permissionsServer) Revoke(
	ctx context.Context, r *coordpb.RevokeRequest,
) (*coordpb.RevokeResponse, error) {
	p, err := s.permission(ctx, r.Keys, r.Rights)
	if err != nil {
		return nil, err
	}
	_, err = s.change(ctx, nil, &storepb.AuthChange{Change: &storepb.AuthChange_RevokeKeyspace{
		RevokeKeyspace: &storepb.KeyspaceGrant{Role: r.Role, Permission: p}}})
	if err != nil {
		return nil, err
	}
	return &coordpb.RevokeResponse{}, nil
}

// Get implements coordpb.PermissionsServer.
func (s *permissionsServer) Get(
	ctx context.Context, r *coordpb.GetPermissionsRequest,
) (*coordpb.GetPermissionsResponse, error) {
	state, err := s.state(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
		if err := state.Admin(who); err != nil && !state.HasRole(who.User, r.Role) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	permissions, err := state.KeyspacePermissions(r.Role)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	names := map[uint64]string{}
	if s.config.Keyspaces != nil && len(permissions) > 0 {
		if names, err = s.config.Keyspaces.Names(ctx); err != nil {
			return nil, s.keyspacesError(ctx, err)
		}
	}
	response := &coordpb.GetPermissionsResponse{}
	for _, p := range permissions {
		response.Permissions = append(response.Permissions, &coordpb.KeyspacePermission{
			Keys: rangeOf(p, names[p.Keyspace]), Rights: &coordpb.Rights{
				Read:  p.Rights&authority.KeyspaceRead != 0,
				Write: p.Rights&authority.KeyspaceWrite != 0,
				Admin: p.Rights&authority.KeyspaceAdmin != 0}})
	}
	return response, nil
}

// rangeOf returns the keys of a permission.
func rangeOf(p *storepb.KeyspacePermission, name string) *coordpb.KeyspaceRange {
	r := &coordpb.KeyspaceRange{Keyspace: name, KeyspaceId: p.Keyspace, Start: p.Key}
	switch {
	case len(p.RangeEnd) == 0:
		r.End = append(append([]byte{}, p.Key...), 0)
	case string(p.RangeEnd) != openEnd:
		r.End = p.RangeEnd
	}
	return r
}

// permission returns a permission in its stored form, for a client that may change it.
func (s *permissionsServer) permission(
	ctx context.Context, r *coordpb.KeyspaceRange, rights *coordpb.Rights,
) (*storepb.KeyspacePermission, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	if s.config.Keyspaces == nil || r == nil {
		return nil, status.Error(codes.InvalidArgument, "no keyspace is named")
	}
	p := &storepb.KeyspacePermission{Keyspace: r.KeyspaceId, Key: r.Start, RangeEnd: r.End}
	if r.Keyspace != "" {
		id, err := s.config.Keyspaces.ID(ctx, r.Keyspace)
		if err != nil {
			return nil, s.keyspacesError(ctx, err)
		}
		if p.Keyspace != 0 && p.Keyspace != id {
			return nil, status.Errorf(codes.FailedPrecondition, "keyspace %s has the id %d, and not %d",
				r.Keyspace, id, p.Keyspace)
		}
		p.Keyspace = id
	}
	switch end := string(r.End); {
	case p.Keyspace == 0:
		return nil, status.Error(codes.InvalidArgument, "no keyspace is named")
	case len(r.Start)+len(r.End) > s.config.MaxRequestBytes:
		return nil, translate.ErrTooLarge
	case end == "":
		p.RangeEnd = []byte(openEnd)
	case end <= string(r.Start):
		return nil, status.Error(codes.InvalidArgument, "a range of keys ends above its first key")
	case end == string(r.Start)+"\x00":
		p.RangeEnd = nil // one key
	}
	if len(p.Key) == 0 && len(p.RangeEnd) == 0 {
		return nil, status.Error(codes.InvalidArgument, "there is no empty key")
	}
	if rights.GetRead() {
		p.Rights |= authority.KeyspaceRead
	}
	if rights.GetWrite() {
		p.Rights |= authority.KeyspaceWrite
	}
	if rights.GetAdmin() {
		p.Rights |= authority.KeyspaceAdmin
	}
	return p, nil
}
