package coreclient

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// CreateKeyspace passes a creation on to the leader. Without a token it gets one, so that it can be
// tried again.
func (c *Client) CreateKeyspace(
	ctx context.Context, r *clusterpb.CreateKeyspaceRequest,
) (*clusterpb.CreateKeyspaceResponse, error) {
	if r.Token == 0 {
		r = proto.Clone(r).(*clusterpb.CreateKeyspaceRequest)
		r.Token = c.config.Random() | 1
	}
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.CreateKeyspace)
}

// DropKeyspace passes a drop on to the leader. Without a token it gets one, so that it can be tried
// again.
func (c *Client) DropKeyspace(
	ctx context.Context, r *clusterpb.DropKeyspaceRequest,
) (*clusterpb.DropKeyspaceResponse, error) {
	if r.Token == 0 {
		r = &clusterpb.DropKeyspaceRequest{Name: r.Name, Token: c.config.Random() | 1}
	}
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.DropKeyspace)
}

// AlterKeyspace passes a change on to the leader.
func (c *Client) AlterKeyspace(
	ctx context.Context, r *clusterpb.AlterKeyspaceRequest,
) (*clusterpb.AlterKeyspaceResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.AlterKeyspace)
}

// ConfirmRecovery passes it on to the leader.
func (c *Client) ConfirmRecovery(
	ctx context.Context, r *clusterpb.ConfirmRecoveryRequest,
) (*clusterpb.ConfirmRecoveryResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ConfirmRecovery)
}

// MoveReplica passes a move on to the leader.
func (c *Client) MoveReplica(
	ctx context.Context, r *clusterpb.MoveReplicaRequest,
) (*clusterpb.MoveReplicaResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.MoveReplica)
}

// CancelOperator passes it on to the leader.
func (c *Client) CancelOperator(
	ctx context.Context, r *clusterpb.CancelOperatorRequest,
) (*clusterpb.CancelOperatorResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.CancelOperator)
}

// ListOperators asks the leader.
func (c *Client) ListOperators(
	ctx context.Context, r *clusterpb.ListOperatorsRequest,
) (*clusterpb.ListOperatorsResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListOperators)
}

// TransferLeader passes it on to the leader.
func (c *Client) TransferLeader(
	ctx context.Context, r *clusterpb.TransferLeaderRequest,
) (*clusterpb.TransferLeaderResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.TransferLeader)
}

// SplitPartition passes it on to the leader.
func (c *Client) SplitPartition(
	ctx context.Context, r *clusterpb.SplitPartitionRequest,
) (*clusterpb.SplitPartitionResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SplitPartition)
}

// MergePartition passes it on to the leader.
func (c *Client) MergePartition(
	ctx context.Context, r *clusterpb.MergePartitionRequest,
) (*clusterpb.MergePartitionResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.MergePartition)
}

// SetNodeStatus passes it on to the leader.
func (c *Client) SetNodeStatus(
	ctx context.Context, r *clusterpb.SetNodeStatusRequest,
) (*clusterpb.SetNodeStatusResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetNodeStatus)
}

// Why asks the leader.
func (c *Client) Why(
	ctx context.Context, r *clusterpb.WhyRequest,
) (*clusterpb.WhyResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.Why)
}

// ListEvents asks the leader.
func (c *Client) ListEvents(
	ctx context.Context, r *clusterpb.ListEventsRequest,
) (*clusterpb.ListEventsResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListEvents)
}

// SetPlacement passes it on to the leader.
func (c *Client) SetPlacement(
	ctx context.Context, r *clusterpb.SetPlacementRequest,
) (*clusterpb.SetPlacementResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetPlacement)
}

// ListNodes asks the leader.
func (c *Client) ListNodes(
	ctx context.Context, r *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListNodes)
}

// ListKeyspaces asks the leader.
func (c *Client) ListKeyspaces(
	ctx context.Context, r *clusterpb.ListKeyspacesRequest,
) (*clusterpb.ListKeyspacesResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListKeyspaces)
}

// ListPartitions asks the leader. Once it has begun to answer, a failure is final.
func (c *Client) ListPartitions(
	ctx context.Context, r *clusterpb.ListPartitionsRequest,
	take func(*clusterpb.PartitionInfo) error,
) error {
	whole, cancel := context.WithCancel(Forwarded(ctx))
	defer cancel()
	return c.call(whole, func(attempt context.Context, conn *grpc.ClientConn) error {
		// The time of an attempt is for the first answer only.
		ctx, cancel := context.WithCancel(whole)
		defer cancel()
		overdue := context.AfterFunc(attempt, cancel)
		defer overdue()
		stream, err := clusterpb.NewClusterClient(conn).ListPartitions(ctx, r)
		if err != nil {
			return err
		}
		for began := false; ; began = true {
			info, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && began:
				return permanent{err}
			case err != nil:
				return err
			}
			overdue()
			if err := take(info); err != nil {
				return permanent{err}
			}
		}
	})
}

// ListCore asks the leader.
func (c *Client) ListCore(
	ctx context.Context, r *clusterpb.ListCoreRequest,
) (*clusterpb.ListCoreResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient, clusterpb.ClusterClient.ListCore)
}

// ChangeCore passes a change of the core's members on to the leader. It may be repeated.
func (c *Client) ChangeCore(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient, clusterpb.ClusterClient.ChangeCore)
}

// SetConsumer passes it on to the leader.
func (c *Client) SetConsumer(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.SetConsumer)
}

// GetConsumer asks the leader.
func (c *Client) GetConsumer(
	ctx context.Context, r *clusterpb.GetConsumerRequest,
) (*clusterpb.GetConsumerResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.GetConsumer)
}

// ListConsumers asks the leader.
func (c *Client) ListConsumers(
	ctx context.Context, r *clusterpb.ListConsumersRequest,
) (*clusterpb.ListConsumersResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.ListConsumers)
}

// DeleteConsumer passes it on to the leader.
func (c *Client) DeleteConsumer(
	ctx context.Context, r *clusterpb.DeleteConsumerRequest,
) (*clusterpb.DeleteConsumerResponse, error) {
	return unary(Forwarded(ctx), c, r, clusterpb.NewClusterClient,
		clusterpb.ClusterClient.DeleteConsumer)
}
