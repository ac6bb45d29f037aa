package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
)

// takeTurn waits for the turn; the caller gives it back by the function that it returns. The error,
// a status, is that ctx ended or that this member is being closed.
func (s *Server) takeTurn(ctx context.Context) (func(), error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, s.toStatus(ctx.Err())
	case <-s.ctx.Done():
		return nil, status.Error(codes.Unavailable, "this member of the core is shutting down")
	}
}

// view gives the leader an up-to-date view, and any other member a refusal.
func (s *Server) view(ctx context.Context) (*store.View, error) {
	l, _ := s.store.Leadership()
	if !l.IsLeader {
		return nil, s.refused(l.Leader)
	}
	v, err := s.store.Read(ctx)
	if err != nil {
		return nil, s.toStatus(err)
	}
	if l, _ = s.store.Leadership(); !l.Serving {
		return nil, s.refused(l.Leader)
	}
	id, _, err := loadID(v, []byte(clusterKey))
	if err != nil {
		return nil, s.toStatus(err)
	}
	if id != 0 && id != s.config.Cluster {
		return nil, status.Errorf(codes.FailedPrecondition,
			"this member was started for cluster %016x and its data is of cluster %016x: parts of "+
				"two directories were mixed", s.config.Cluster, id)
	}
	return v, nil
}

// viewInTurn waits for the turn and then takes a view, as takeTurn and view do, with their errors.
// What the caller decides by the view is not changed by another call that takes the turn, until the
// caller gives it back by the function that viewInTurn returns. With an error it has the turn no
// more, and there is no function to call.
func (s *Server) viewInTurn(ctx context.Context) (*store.View, func(), error) {
	done, err := s.takeTurn(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := s.view(ctx)
	if err != nil {
		done()
		return nil, nil, err
	}
	return v, done, nil
}
