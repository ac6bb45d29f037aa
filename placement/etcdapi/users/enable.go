package users

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Keyspaces is what the services need of the keyspaces whose data users guard. Its methods may be
// called from any goroutine. Errors of gRPC are handed to the client as they are.
type Keyspaces interface {
	// ID is that of a keyspace, as of everything acknowledged before the call.
	ID(ctx context.Context, name string) (uint64, error)
	// Names are those of all keyspaces, by their ids.
	Names(ctx context.Context) (map[uint64]string, error)

	// Guard has all servers follow users and roles, and returns when they do. It begins under a new
	// version, unless they have to already, under one that is not ending, and again is set. version
	// is that under which they follow, which is not ending; with an error, what was begun; 0:
	// nothing was.
	Guard(ctx context.Context, again bool) (version uint64, err error)
	// Guarding says whether servers have to follow, and under which version, as of everything
	// acknowledged before the call.
	Guarding(ctx context.Context) (version uint64, on bool, err error)
	// Release takes one of two steps to let servers go on without, if the version is still that
	// one. The first gives them a new version, under which they still follow, and which is ending.
	// Released in turn, that lets them go on. ending is the version that is ending afterwards; 0:
	// none is.
	Release(ctx context.Context, version uint64) (ending uint64, err error)
}

const (
	// enableTries is how often in a row authentication is enabled while others disable it.
	enableTries = 3
	// releaseSteps is how often a version is released until servers go on without.
	releaseSteps = 2
	// releaseTimeout bounds what is asked of the keyspaces before and after authentication is
	// disabled, which does not depend on it.
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
		// If it was disabled meanwhile, servers may not have to follow any more.
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

// NewKey makes the command that enables authentication, with a new key that signs tokens.
func NewKey() *storepb.AuthEnable {
	key := make([]byte, authority.KeyBytes)
	_, _ = rand.Read(key) // it never fails
	return &storepb.AuthEnable{Key: key}
}

// enable does the command.
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
	// What is released is what was so before: enabling it again begins something newer.
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

// release lets servers go on without users and roles, if authentication is not enabled and a
// version is what they follow under; 0 is none.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, servers follow. A member
// that enables it sees, after the command, a version that is not ending. A version is ending from
// its first moment or never, and servers go on without only after authentication was seen not to be
// enabled when that version was ending already. If that was after the command, the command was
// undone. If it was before, the version that was seen is another one, begun later, and that is not
// what is released.
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

// keyspacesError hands an error of Keyspaces to the client.
func (s *Server) keyspacesError(ctx context.Context, err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	return translate.Error(ctx, err)
}

// Enabling does the last step of an import that enables authentication, with what comes before and
// after the command (see AuthEnable).
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
