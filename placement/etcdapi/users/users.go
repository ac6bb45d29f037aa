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
)

// Config is what a Server is made of.
type Config struct {
	// Keyspaces gives access to the keyspaces whose data users guard. nil: there are no keyspaces.
	Keyspaces Keyspaces
	// Passwords configures how passwords are hashed. The zero value has etcd's cost, and two at a
	// time.
	Passwords passwords.Config
	// MaxRequestBytes bounds a request that goes through the log.
	MaxRequestBytes int
	Logger          *slog.Logger
}

// Keyspaces gives the services access to the keyspaces whose data users guard. Its methods may be
// called from any goroutine. gRPC errors are passed to the client unchanged.
type Keyspaces interface {
	// ID returns the id of a keyspace, as of everything acknowledged before the call.
	ID(ctx context.Context, name string) (uint64, error)
	// Names returns the names of all keyspaces, by their ids.
	Names(ctx context.Context) (map[uint64]string, error)

	// Guard makes all servers follow users and roles, and returns when they do. It begins a new
	// version, unless servers already follow under a version that is not ending; with again set it
	// begins a new version in any case. version is the version under which they follow, which is
	// not ending; with an error, the version that was begun; 0: none was.
	Guard(ctx context.Context, again bool) (version uint64, err error)
	// Guarding reports whether servers must follow, and under which version, as of everything
	// acknowledged before the call.
	Guarding(ctx context.Context) (version uint64, on bool, err error)
	// Release takes one of two steps after which servers need not follow, if the version is still
	// the present one. The first step begins a new version, under which they still follow, and
	// which is ending. Releasing that version lets them stop. ending is the version that is ending
	// afterwards; 0: none is.
	Release(ctx context.Context, version uint64) (ending uint64, err error)
}

// Server is the Auth service. It administers users (accounts.go) and roles (roles.go), and checks
// passwords.
type Server struct {
	pb.UnimplementedAuthServer
	*authorize.Authorizer
	config    Config
	passwords *passwords.Passwords
}

// New makes the service Auth; its Permissions is the service for the data of keyspaces.
func New(a *authorize.Authorizer, config Config) *Server {
	return &Server{Authorizer: a, config: config, passwords: passwords.New(config.Passwords)}
}

// AuthStatus implements etcdserverpb.AuthServer. It needs no user, but a token in the call must be
// valid.
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

// Authenticate implements etcdserverpb.AuthServer. The answer for an unknown user takes as long as
// that for a wrong password.
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

// change changes users and roles, and returns the store's revision. size is the part of the request
// whose size is bounded; nil: none.
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

// state returns the newest users and roles, for a client that may see them.
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

// keyspacesError converts an error of Keyspaces for the client.
func (s *Server) keyspacesError(ctx context.Context, err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	return translate.ChangeError(ctx, err)
}
