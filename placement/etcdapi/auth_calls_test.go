package etcdapi

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// callAuth does a request that administers, or watches: of a watch the answer is the first.
func (e *endpoint) callAuth(ctx context.Context, request proto.Message) (proto.Message, error) {
	auth := pb.NewAuthClient(e.connection)
	switch r := request.(type) {
	case *pb.AuthEnableRequest:
		return auth.AuthEnable(ctx, r)
	case *pb.AuthDisableRequest:
		return auth.AuthDisable(ctx, r)
	case *pb.AuthUserAddRequest:
		return auth.UserAdd(ctx, r)
	case *pb.AuthUserDeleteRequest:
		return auth.UserDelete(ctx, r)
	case *pb.AuthUserGetRequest:
		return auth.UserGet(ctx, r)
	case *pb.AuthUserListRequest:
		return auth.UserList(ctx, r)
	case *pb.AuthUserChangePasswordRequest:
		return auth.UserChangePassword(ctx, r)
	case *pb.AuthUserGrantRoleRequest:
		return auth.UserGrantRole(ctx, r)
	case *pb.AuthUserRevokeRoleRequest:
		return auth.UserRevokeRole(ctx, r)
	case *pb.AuthRoleAddRequest:
		return auth.RoleAdd(ctx, r)
	case *pb.AuthRoleDeleteRequest:
		return auth.RoleDelete(ctx, r)
	case *pb.AuthRoleGetRequest:
		return auth.RoleGet(ctx, r)
	case *pb.AuthRoleListRequest:
		return auth.RoleList(ctx, r)
	case *pb.AuthRoleGrantPermissionRequest:
		return auth.RoleGrantPermission(ctx, r)
	case *pb.AuthRoleRevokePermissionRequest:
		return auth.RoleRevokePermission(ctx, r)
	case *pb.HashRequest:
		return pb.NewMaintenanceClient(e.connection).Hash(ctx, r)
	case *pb.StatusRequest:
		return pb.NewMaintenanceClient(e.connection).Status(ctx, r)
	case *pb.MemberListRequest:
		return pb.NewClusterClient(e.connection).MemberList(ctx, r)
	case *pb.WatchCreateRequest:
		return e.watch(ctx, r)
	}
	return nil, errors.New("no such request")
}

func (e *endpoint) watch(
	ctx context.Context, r *pb.WatchCreateRequest,
) (proto.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(e.connection).Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	return answer, nil
}
