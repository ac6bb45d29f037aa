package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// authServer answers as an etcd that authenticates nobody. Users and roles are Unimplemented.
type authServer struct {
	pb.UnimplementedAuthServer
	*backend
}

// AuthStatus implements etcdserverpb.AuthServer.
func (s *authServer) AuthStatus(
	context.Context, *pb.AuthStatusRequest,
) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.header(0), AuthRevision: 1}, nil
}

// Authenticate implements etcdserverpb.AuthServer.
func (s *authServer) Authenticate(
	context.Context, *pb.AuthenticateRequest,
) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}
