package users

import (
	"context"
	"encoding/base64"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// UserAdd implements etcdserverpb.AuthServer. A hash in the request is ignored.
func (s *Server) UserAdd(
	ctx context.Context, r *pb.AuthUserAddRequest,
) (*pb.AuthUserAddResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	add := &storepb.UserAdd{Name: r.Name, NoPassword: r.Options.GetNoPassword()}
	if !add.NoPassword {
		var err error
		if add.Hash, err = s.hash(ctx, r.Password); err != nil {
			return nil, err
		}
	}
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthUserAdd: r}, &storepb.AuthChange{
		Change: &storepb.AuthChange_UserAdd{UserAdd: add}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserAddResponse{Header: s.Header(revision)}, nil
}

// UserDelete implements etcdserverpb.AuthServer.
func (s *Server) UserDelete(
	ctx context.Context, r *pb.AuthUserDeleteRequest,
) (*pb.AuthUserDeleteResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthUserDelete: r}, &storepb.AuthChange{
		Change: &storepb.AuthChange_UserDelete{UserDelete: &storepb.UserDelete{Name: r.Name}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserDeleteResponse{Header: s.Header(revision)}, nil
}

// UserChangePassword implements etcdserverpb.AuthServer. Without a password, the hash in the
// request is used. Without either, no password is correct.
func (s *Server) UserChangePassword(
	ctx context.Context, r *pb.AuthUserChangePasswordRequest,
) (*pb.AuthUserChangePasswordResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	change := &storepb.UserPassword{Name: r.Name}
	var err error
	if r.Password != "" {
		change.Hash, err = s.hash(ctx, r.Password)
	} else if change.Hash, err = base64.StdEncoding.DecodeString(r.HashedPassword); err != nil {
		err = authorize.ErrPasswordForNone // as etcd answers
	}
	if err != nil {
		return nil, err
	}
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthUserChangePassword: r},
		&storepb.AuthChange{Change: &storepb.AuthChange_UserPassword{UserPassword: change}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserChangePasswordResponse{Header: s.Header(revision)}, nil
}

// UserGrantRole implements etcdserverpb.AuthServer.
func (s *Server) UserGrantRole(
	ctx context.Context, r *pb.AuthUserGrantRoleRequest,
) (*pb.AuthUserGrantRoleResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthUserGrantRole: r},
		&storepb.AuthChange{Change: &storepb.AuthChange_GrantRole{
			GrantRole: &storepb.UserRole{User: r.User, Role: r.Role}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserGrantRoleResponse{Header: s.Header(revision)}, nil
}

// UserRevokeRole implements etcdserverpb.AuthServer.
func (s *Server) UserRevokeRole(
	ctx context.Context, r *pb.AuthUserRevokeRoleRequest,
) (*pb.AuthUserRevokeRoleResponse, error) {
	revision, err := s.change(ctx, &pb.InternalRaftRequest{AuthUserRevokeRole: r},
		&storepb.AuthChange{Change: &storepb.AuthChange_RevokeRole{
			RevokeRole: &storepb.UserRole{User: r.Name, Role: r.Role}}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserRevokeRoleResponse{Header: s.Header(revision)}, nil
}

// UserGet implements etcdserverpb.AuthServer: administrators may call it, and the user itself.
func (s *Server) UserGet(
	ctx context.Context, r *pb.AuthUserGetRequest,
) (*pb.AuthUserGetResponse, error) {
	state, err := s.state(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
		if err := state.Admin(who); err != nil && r.Name != who.User {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	roles, err := state.UserRoles(r.Name)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	return &pb.AuthUserGetResponse{Header: s.Header(0), Roles: roles}, nil
}

// UserList implements etcdserverpb.AuthServer.
func (s *Server) UserList(
	ctx context.Context, _ *pb.AuthUserListRequest,
) (*pb.AuthUserListResponse, error) {
	state, err := s.state(ctx, (*authority.State).Admin)
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserListResponse{Header: s.Header(0), Users: state.Users()}, nil
}
