package users

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

const (
	// enableTries bounds the attempts to enable authentication while others disable it.
	enableTries = 3
	// releaseSteps is how often a version must be released until servers stop following.
	releaseSteps = 2
	// releaseTimeout bounds the calls to the keyspaces before and after authentication is disabled,
	// which does not depend on them.
	releaseTimeout = 3 * time.Second
)

// AuthEnable implements etcdserverpb.AuthServer.
func (s *Server) AuthEnable(
	ctx context.Context, _ *pb.AuthEnableRequest,
) (*pb.AuthEnableResponse, error) {
	if s.config.Keyspaces == nil {
		return s.enable(ctx)
	}
	for range enableTries {
		state, err := s.state(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
			if err := state.Admin(who); err != nil {
				return err
			}
			return state.CanEnable()
		})
		if err != nil {
			return nil, err
		}
		version, err := s.config.Keyspaces.Guard(ctx, state.Enabled())
		if err != nil {
			s.release(ctx, version)
			return nil, s.keyspacesError(ctx, err)
		}
		response, err := s.enable(ctx)
		if err != nil {
			s.release(ctx, version)
			return nil, err
		}
		// If authentication was disabled meanwhile, servers may not have to follow any more.
		now, on, err := s.config.Keyspaces.Guarding(ctx)
		if err != nil {
			return nil, s.keyspacesError(ctx, err)
		}
		if on && now == version {
			return response, nil
		}
	}
	return nil, status.Error(codes.Unavailable, "authentication was disabled again and again while "+
		"it was being enabled; try again")
}

// NewKey returns the command that enables authentication, with a new key for signing tokens.
func NewKey() *storepb.AuthEnable {
	key := make([]byte, authority.KeyBytes)
	_, _ = rand.Read(key) // it never fails
	return &storepb.AuthEnable{Key: key}
}

// enable executes the command.
func (s *Server) enable(ctx context.Context) (*pb.AuthEnableResponse, error) {
	revision, err := s.change(ctx, nil, &storepb.AuthChange{
		Change: &storepb.AuthChange_Enable{Enable: NewKey()}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthEnableResponse{Header: s.Header(revision)}, nil
}

// AuthDisable implements etcdserverpb.AuthServer.
func (s *Server) AuthDisable(
	ctx context.Context, _ *pb.AuthDisableRequest,
) (*pb.AuthDisableResponse, error) {
	// Only what existed before is released: enabling authentication again begins a newer version.
	version := uint64(0)
	if s.config.Keyspaces != nil {
		limited, cancel := context.WithTimeout(ctx, releaseTimeout)
		v, on, err := s.config.Keyspaces.Guarding(limited)
		cancel()
		switch {
		case err != nil:
			s.config.Logger.Warn("servers go on to follow users and roles, although authentication is "+
				"disabled: disable it again", "error", err)
		case on:
			version = v
		}
	}
	revision, err := s.change(ctx, nil, &storepb.AuthChange{
		Change: &storepb.AuthChange_Disable{Disable: &storepb.AuthDisable{}}})
	if err != nil {
		return nil, err
	}
	s.release(ctx, version)
	return &pb.AuthDisableResponse{Header: s.Header(revision)}, nil
}

// release lets servers stop following users and roles, if authentication is not enabled and they
// follow under this version; 0: none.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, servers follow. A member
// that enables it sees, after the command, a version that is not ending. A version is ending from
// its beginning or never. Servers stop only after a release has seen that authentication was not
// enabled while that version was already ending. If this was after the command, the command was
// undone. If it was before, the version that the enabling member saw is another one, begun later,
// and is not the one released.
func (s *Server) release(ctx context.Context, version uint64) {
	if version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for range releaseSteps {
		_, err := s.Store.Read(ctx)
		if err == nil && s.Store.Authority().Enabled() {
			return
		}
		if err == nil {
			version, err = s.config.Keyspaces.Release(ctx, version)
		}
		if err != nil {
			s.config.Logger.Warn("servers go on to follow users and roles, although authentication is not "+
				"enabled: `tidemark auth disable` has them stop", slog.Any("error", err))
			return
		}
		if version == 0 {
			return
		}
	}
}

// Enabling executes the last step of an import that enables authentication, with the calls before
// and after the command (see AuthEnable).
func (s *Server) Enabling(ctx context.Context, do func() error) error {
	if s.config.Keyspaces == nil {
		return do()
	}
	if _, err := s.Administer(ctx); err != nil {
		return err
	}
	version, err := s.config.Keyspaces.Guard(ctx, false)
	if err != nil {
		s.release(ctx, version)
		return s.keyspacesError(ctx, err)
	}
	if err := do(); err != nil {
		s.release(ctx, version)
		return err
	}
	now, on, err := s.config.Keyspaces.Guarding(ctx)
	switch {
	case err != nil:
		return s.keyspacesError(ctx, err)
	case !on || now != version:
		return status.Error(codes.FailedPrecondition, "the import has ended, and authentication was "+
			"disabled while it was being enabled: enable it again with `tidemark auth enable`")
	}
	return nil
}
