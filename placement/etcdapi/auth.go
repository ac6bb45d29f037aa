package etcdapi

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// authServer administers users and roles (auth_users.go, auth_roles.go), and knows them by their
// passwords.
type authServer struct {
	pb.UnimplementedAuthServer
	*backend
}

// AuthStatus implements etcdserverpb.AuthServer. It needs no user, but a token that comes with it
// has to be valid.
func (s *authServer) AuthStatus(
	ctx context.Context, _ *pb.AuthStatusRequest,
) (*pb.AuthStatusResponse, error) {
	state, err := s.state(ctx, func(*authority.State, *storepb.AuthInfo) error { return nil })
	if err != nil {
		return nil, err
	}
	return &pb.AuthStatusResponse{Header: s.header(0), Enabled: state.Enabled(),
		AuthRevision: state.Revision()}, nil
}

// errPasswordForNone is what etcd answers when a password comes for a user that has none.
var errPasswordForNone = status.Error(codes.Unknown,
	"auth: authentication failed, password was given for no password user")

// Authenticate implements etcdserverpb.AuthServer. The answer for a user that there is not takes as
// long as that for a wrong password.
func (s *authServer) Authenticate(
	ctx context.Context, r *pb.AuthenticateRequest,
) (*pb.AuthenticateResponse, error) {
	if c := callOf(ctx); c != nil {
		c.note(identity{info: &storepb.AuthInfo{User: r.Name}})
	}
	if err := s.confirm(ctx); err != nil {
		return nil, err
	}
	state := s.Store.Authority()
	if !state.Enabled() {
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	}
	login, known := state.Login(r.Name)
	known = known && len(r.Name) <= authority.MaxTokenUser
	if login.NoPassword {
		s.metrics.login(false)
		return nil, errPasswordForNone
	}
	equal, err := s.passwords.Compare(ctx, s.Party(ctx), login.Hash, r.Password)
	if err != nil {
		return nil, s.passwordError(ctx, err)
	}
	s.metrics.login(known && equal)
	if !known || !equal {
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	// If the user, the password or the key has changed meanwhile, the token is not valid.
	token := authority.Token{User: r.Name, Generation: login.Generation,
		Index: s.Store.AppliedIndex(), Issued: s.Now()}
	return &pb.AuthenticateResponse{Header: s.header(0), Token: state.Sign(token)}, nil
}

// hash hashes a password for a user who may administer.
func (s *authServer) hash(ctx context.Context, password string) ([]byte, error) {
	hash, err := s.passwords.Hash(ctx, s.Party(ctx), password)
	return hash, s.passwordError(ctx, err)
}

func (s *authServer) passwordError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, passwords.ErrPassword):
		return status.Error(codes.Unknown, err.Error())
	case errors.Is(err, fairshare.ErrBusy):
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	return s.toGRPC(ctx, err)
}

// change changes users and roles, and returns the store's revision. size is what is bounded of the
// request; nil: it has no size worth a bound.
func (s *authServer) change(
	ctx context.Context, size *pb.InternalRaftRequest, change *storepb.AuthChange,
) (uint64, error) {
	if size != nil {
		if err := s.checkSize(size); err != nil {
			return 0, err
		}
	}
	result, err := s.execute(ctx, store.ChangeAuth(nil, change))
	if err != nil {
		return 0, err
	}
	return result.Revision, nil
}

// state is the newest version of users and roles, for a client that may see it.
func (s *authServer) state(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*authority.State, error) {
	if err := s.confirm(ctx); err != nil {
		return nil, err
	}
	who, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	state := s.Store.Authority()
	if err := check(state, who); err != nil {
		return nil, s.toGRPC(ctx, err)
	}
	return state, nil
}
