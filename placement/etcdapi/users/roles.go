package users

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// RoleAdd implements etcdserverpb.AuthServer.
func (s *Server) RoleAdd(
	ctx context.Context, r *pb.AuthRoleAddRequest,
) (*pb.AuthRoleAddResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthRoleAdd: r}, &storepb.AuthChange{
		Change: &storepb.AuthChange_RoleAdd{RoleAdd: &storepb.RoleAdd{Name: r.Name}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleAddResponse{Header: s.Header(revision)}, nil
}

// RoleDelete implements etcdserverpb.AuthServer.
func (s *Server) RoleDelete(
	ctx context.Context, r *pb.AuthRoleDeleteRequest,
) (*pb.AuthRoleDeleteResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthRoleDelete: r}, &storepb.AuthChange{
		Change: &storepb.AuthChange_RoleDelete{RoleDelete: &storepb.RoleDelete{Name: r.Role}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleDeleteResponse{Header: s.Header(revision)}, nil
}

// RoleGrantPermission implements etcdserverpb.AuthServer.
func (s *Server) RoleGrantPermission(
	ctx context.Context, r *pb.AuthRoleGrantPermissionRequest,
) (*pb.AuthRoleGrantPermissionResponse, error) {
	grant := &storepb.RolePermission{Role: r.Name}
	if p := r.Perm; p != nil {
		grant.Permission = &storepb.Permission{Type: storepb.Permission_Type(p.PermType), Key: p.Key,
			RangeEnd: p.RangeEnd}
	}
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthRoleGrantPermission: r},
		&storepb.AuthChange{Change: &storepb.AuthChange_GrantPermission{GrantPermission: grant}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleGrantPermissionResponse{Header: s.Header(revision)}, nil
}

// RoleRevokePermission implements etcdserverpb.AuthServer.
func (s *Server) RoleRevokePermission(
	ctx context.Context, r *pb.AuthRoleRevokePermissionRequest,
) (*pb.AuthRoleRevokePermissionResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthRoleRevokePermission: r},
		&storepb.AuthChange{Change: &storepb.AuthChange_RevokePermission{
			RevokePermission: &storepb.RolePermission{Role: r.Role,
				Permission: &storepb.Permission{Key: r.Key, RangeEnd: r.RangeEnd}}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleRevokePermissionResponse{Header: s.Header(revision)}, nil
}

// RoleGet implements etcdserverpb.AuthServer: for administrators, and for users that have the role.
func (s *Server) RoleGet(
	ctx context.Context, r *pb.AuthRoleGetRequest,
) (*pb.AuthRoleGetResponse, error) {
	state, err := s.state(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
		if err := state.Admin(who); err != nil && !state.HasRole(who.User, r.Role) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	permissions, err := state.Permissions(r.Role)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	response := &pb.AuthRoleGetResponse{Header: s.Header(0)}
	for _, p := range permissions {
		response.Perm = append(response.Perm, &authpb.Permission{
			PermType: authpb.Permission_Type(p.Type), Key: p.Key, RangeEnd: p.RangeEnd})
	}
	return response, nil
}

// RoleList implements etcdserverpb.AuthServer.
func (s *Server) RoleList(
	ctx context.Context, _ *pb.AuthRoleListRequest,
) (*pb.AuthRoleListResponse, error) {
	state, err := s.state(ctx, (*authority.State).Admin)
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleListResponse{Header: s.Header(0), Roles: state.Roles()}, nil
}
