package server

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// SetConsumer implements clusterpb.ClusterServer. It returns when the change is recorded; the nodes
// hear of what it protects a moment later.
func (s *ClusterService) SetConsumer(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	return answer(ctx, s, r, (*Server).SetConsumer, (*Client).SetConsumer)
}

// GetConsumer implements clusterpb.ClusterServer.
func (s *ClusterService) GetConsumer(
	ctx context.Context, r *clusterpb.GetConsumerRequest,
) (*clusterpb.GetConsumerResponse, error) {
	return answer(ctx, s, r, (*Server).GetConsumer, (*Client).GetConsumer)
}

// ListConsumers implements clusterpb.ClusterServer.
func (s *ClusterService) ListConsumers(
	ctx context.Context, r *clusterpb.ListConsumersRequest,
) (*clusterpb.ListConsumersResponse, error) {
	return answer(ctx, s, r, (*Server).ListConsumers, (*Client).ListConsumers)
}

// DeleteConsumer implements clusterpb.ClusterServer.
func (s *ClusterService) DeleteConsumer(
	ctx context.Context, r *clusterpb.DeleteConsumerRequest,
) (*clusterpb.DeleteConsumerResponse, error) {
	return answer(ctx, s, r, (*Server).DeleteConsumer, (*Client).DeleteConsumer)
}

// SetConsumer passes it on to the leader.
func (c *Client) SetConsumer(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetConsumer)
}

// GetConsumer asks the leader.
func (c *Client) GetConsumer(
	ctx context.Context, r *clusterpb.GetConsumerRequest,
) (*clusterpb.GetConsumerResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.GetConsumer)
}

// ListConsumers asks the leader.
func (c *Client) ListConsumers(
	ctx context.Context, r *clusterpb.ListConsumersRequest,
) (*clusterpb.ListConsumersResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListConsumers)
}

// DeleteConsumer passes it on to the leader.
func (c *Client) DeleteConsumer(
	ctx context.Context, r *clusterpb.DeleteConsumerRequest,
) (*clusterpb.DeleteConsumerResponse, error) {
	return unary(forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.DeleteConsumer)
}
