package users

import (
	"context"
	"errors"
	"log/slog"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Config is what a Server is made of.
type Config struct {
	// Keyspaces are those whose data users guard as well. nil: there are no keyspaces.
	Keyspaces Keyspaces
	// Passwords says how passwords are hashed. The zero value has etcd's cost, and two at a time.
	Passwords passwords.Config
	// MaxRequestBytes bounds a request that goes through the log.
	MaxRequestBytes int
	Logger          *slog.Logger
}

// Server is the Auth service. It administers users (accounts.go) and roles (roles.go), and tells
// users by their passwords.
type Server struct {
	pb.UnimplementedAuthServer
	*authorize.Authorizer
	config    Config
	passwords *passwords.Passwords
}

// New makes the services Auth and Permissions.
func New(a *authorize.Authorizer, config Config) (*Server, coordpb.PermissionsServer) {
	s := &Server{Authorizer: a, config: config, passwords: passwords.New(config.Passwords)}
	return s, &permissionsServer{Server: s}
}

// AuthStatus implements etcdserverpb.AuthServer. It needs no user, but a token that comes with it
// has to be valid.
func (s *Server) AuthStatus(
	ctx context.Context, _ *pb.AuthStatusRequest,
) (*pb.AuthStatusResponse, error) {
	state, err := s.state(ctx, func(*authority.State, *storepb.AuthInfo) error { return nil })
	if err != nil {
		return nil, err
	}
	return &pb.AuthStatusResponse{Header: s.Header(0), Enabled: state.Enabled(),
		AuthRevision: state.Revision()}, nil
}

// Authenticate implements etcdserverpb.AuthServer. The answer for a user that there is not takes as
// long as that for a wrong password.
func (s *Server) Authenticate(
	ctx context.Context, r *pb.AuthenticateRequest,
) (*pb.AuthenticateResponse, error) {
	authorize.NoteUser(ctx, r.Name)
	if err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	state := s.Store.Authority()
	if !state.Enabled() {
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	}
	login, known := state.Login(r.Name)
	known = known && len(r.Name) <= authority.MaxTokenUser
	if login.NoPassword {
		s.CountLogin(false)
		return nil, authorize.ErrPasswordForNone
	}
	equal, err := s.passwords.Compare(ctx, s.Party(ctx), login.Hash, r.Password)
	if err != nil {
		return nil, s.passwordError(ctx, err)
	}
	s.CountLogin(known && equal)
	if !known || !equal {
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	// If the user, the password or the key has changed meanwhile, the token is not valid.
	return &pb.AuthenticateResponse{Header: s.Header(0),
		Token: s.Sign(state, r.Name, login.Generation)}, nil
}

// hash hashes a password for a user who may administer.
func (s *Server) hash(ctx context.Context, password string) ([]byte, error) {
	hash, err := s.passwords.Hash(ctx, s.Party(ctx), password)
	return hash, s.passwordError(ctx, err)
}

func (s *Server) passwordError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, passwords.ErrPassword):
		return status.Error(codes.Unknown, err.Error())
	case errors.Is(err, fairshare.ErrBusy):
		return rpctypes.ErrGRPCRequestTooManyRequests
	}
	return translate.Error(ctx, err)
}

// change changes users and roles, and returns the store's revision. size is what is bounded of the
// request; nil: it has no size worth a bound.
func (s *Server) change(
	ctx context.Context, size *pb.InternalRaftRequest, change *storepb.AuthChange,
) (uint64, error) {
	if size != nil {
		if err := translate.CheckSize(size, s.config.MaxRequestBytes); err != nil {
			return 0, err
		}
	}
	result, err := s.Execute(ctx, store.ChangeAuth(nil, change))
	if err != nil {
		return 0, err
	}
	return result.Revision, nil
}

// state is the newest version of users and roles, for a client that may see it.
func (s *Server) state(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*authority.State, error) {
	if err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	who, err := s.Identify(ctx)
	if err != nil {
		return nil, err
	}
	state := s.Store.Authority()
	if err := check(state, who); err != nil {
		return nil, translate.Error(ctx, err)
	}
	return state, nil
}
