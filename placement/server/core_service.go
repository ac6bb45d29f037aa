package server

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ListCore implements clusterpb.ClusterServer.
func (s *ClusterService) ListCore(
	ctx context.Context, r *clusterpb.ListCoreRequest,
) (*clusterpb.ListCoreResponse, error) {
	return answer(ctx, s, r, (*Server).ListCore, (*Client).ListCore)
}

// ChangeCore implements clusterpb.ClusterServer. It returns when the change is recorded; ListCore
// shows how it goes on.
func (s *ClusterService) ChangeCore(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	return answer(ctx, s, r, (*Server).ChangeCore, (*Client).ChangeCore)
}
