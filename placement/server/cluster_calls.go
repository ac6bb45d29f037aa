package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/nodes"
	"github.com/tidemarkdb/tidemark/placement/server/operators"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// These are the calls of the service Cluster that only the core's leader answers. A room of the
// Server, or the Server itself, does each call.

// CreateKeyspace implements clusterpb.ClusterServer. It returns when the keyspace is recorded;
// ListKeyspaces and WatchTable show when it is ACTIVE.
func (s *ClusterService) CreateKeyspace(
	ctx context.Context, r *clusterpb.CreateKeyspaceRequest,
) (*clusterpb.CreateKeyspaceResponse, error) {
	return answer(ctx, s, r, in((*Server).Keyspaces, (*keyspaces.Keyspaces).Create),
		clusterpb.ClusterClient.CreateKeyspace)
}

// DropKeyspace implements clusterpb.ClusterServer. It returns when the name is free again.
func (s *ClusterService) DropKeyspace(
	ctx context.Context, r *clusterpb.DropKeyspaceRequest,
) (*clusterpb.DropKeyspaceResponse, error) {
	return answer(ctx, s, r, in((*Server).Keyspaces, (*keyspaces.Keyspaces).Drop),
		clusterpb.ClusterClient.DropKeyspace)
}

// AlterKeyspace implements clusterpb.ClusterServer. It returns when the change is recorded. The
// nodes learn of the change shortly afterwards.
func (s *ClusterService) AlterKeyspace(
	ctx context.Context, r *clusterpb.AlterKeyspaceRequest,
) (*clusterpb.AlterKeyspaceResponse, error) {
	return answer(ctx, s, r, in((*Server).Keyspaces, (*keyspaces.Keyspaces).Alter),
		clusterpb.ClusterClient.AlterKeyspace)
}

// CreateBackup implements clusterpb.ClusterServer.
func (s *ClusterService) CreateBackup(
	ctx context.Context, r *clusterpb.CreateBackupRequest,
) (*clusterpb.CreateBackupResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).Create),
		clusterpb.ClusterClient.CreateBackup)
}

// ListBackups implements clusterpb.ClusterServer.
func (s *ClusterService) ListBackups(
	ctx context.Context, r *clusterpb.ListBackupsRequest,
) (*clusterpb.ListBackupsResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).List),
		clusterpb.ClusterClient.ListBackups)
}

// CancelBackup implements clusterpb.ClusterServer.
func (s *ClusterService) CancelBackup(
	ctx context.Context, r *clusterpb.CancelBackupRequest,
) (*clusterpb.CancelBackupResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).Cancel),
		clusterpb.ClusterClient.CancelBackup)
}

// SetBackupSchedule implements clusterpb.ClusterServer.
func (s *ClusterService) SetBackupSchedule(
	ctx context.Context, r *clusterpb.SetBackupScheduleRequest,
) (*clusterpb.SetBackupScheduleResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).SetSchedule),
		clusterpb.ClusterClient.SetBackupSchedule)
}

// ListBackupSchedules implements clusterpb.ClusterServer.
func (s *ClusterService) ListBackupSchedules(
	ctx context.Context, r *clusterpb.ListBackupSchedulesRequest,
) (*clusterpb.ListBackupSchedulesResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).ListSchedules),
		clusterpb.ClusterClient.ListBackupSchedules)
}

// DeleteBackupSchedule implements clusterpb.ClusterServer.
func (s *ClusterService) DeleteBackupSchedule(
	ctx context.Context, r *clusterpb.DeleteBackupScheduleRequest,
) (*clusterpb.DeleteBackupScheduleResponse, error) {
	return answer(ctx, s, r, in((*Server).Backups, (*backups.Backups).DeleteSchedule),
		clusterpb.ClusterClient.DeleteBackupSchedule)
}

// ConfirmRecovery implements clusterpb.ClusterServer.
func (s *ClusterService) ConfirmRecovery(
	ctx context.Context, r *clusterpb.ConfirmRecoveryRequest,
) (*clusterpb.ConfirmRecoveryResponse, error) {
	return answer(ctx, s, r, in((*Server).Nodes, (*nodes.Nodes).ConfirmRecovery),
		clusterpb.ClusterClient.ConfirmRecovery)
}

// MoveReplica implements clusterpb.ClusterServer. It returns when the move is recorded.
// ListOperators shows its progress.
func (s *ClusterService) MoveReplica(
	ctx context.Context, r *clusterpb.MoveReplicaRequest,
) (*clusterpb.MoveReplicaResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Move),
		clusterpb.ClusterClient.MoveReplica)
}

// CancelOperator implements clusterpb.ClusterServer.
func (s *ClusterService) CancelOperator(
	ctx context.Context, r *clusterpb.CancelOperatorRequest,
) (*clusterpb.CancelOperatorResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Cancel),
		clusterpb.ClusterClient.CancelOperator)
}

// ListOperators implements clusterpb.ClusterServer.
func (s *ClusterService) ListOperators(
	ctx context.Context, r *clusterpb.ListOperatorsRequest,
) (*clusterpb.ListOperatorsResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).List),
		clusterpb.ClusterClient.ListOperators)
}

// TransferLeader implements clusterpb.ClusterServer. It returns when the transfer is recorded.
// ListOperators shows its progress.
func (s *ClusterService) TransferLeader(
	ctx context.Context, r *clusterpb.TransferLeaderRequest,
) (*clusterpb.TransferLeaderResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Transfer),
		clusterpb.ClusterClient.TransferLeader)
}

// SplitPartition implements clusterpb.ClusterServer. It returns when the split is recorded.
// ListOperators shows its progress.
func (s *ClusterService) SplitPartition(
	ctx context.Context, r *clusterpb.SplitPartitionRequest,
) (*clusterpb.SplitPartitionResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Split),
		clusterpb.ClusterClient.SplitPartition)
}

// MergePartition implements clusterpb.ClusterServer. It returns when the merge is recorded.
// ListOperators shows its progress.
func (s *ClusterService) MergePartition(
	ctx context.Context, r *clusterpb.MergePartitionRequest,
) (*clusterpb.MergePartitionResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Merge),
		clusterpb.ClusterClient.MergePartition)
}

// SetNodeStatus implements clusterpb.ClusterServer. It returns when the change is recorded.
func (s *ClusterService) SetNodeStatus(
	ctx context.Context, r *clusterpb.SetNodeStatusRequest,
) (*clusterpb.SetNodeStatusResponse, error) {
	return answer(ctx, s, r, in((*Server).Nodes, (*nodes.Nodes).SetStatus),
		clusterpb.ClusterClient.SetNodeStatus)
}

// Why implements clusterpb.ClusterServer.
func (s *ClusterService) Why(
	ctx context.Context, r *clusterpb.WhyRequest,
) (*clusterpb.WhyResponse, error) {
	return answer(ctx, s, r, (*Server).Why, clusterpb.ClusterClient.Why)
}

// ListEvents implements clusterpb.ClusterServer.
func (s *ClusterService) ListEvents(
	ctx context.Context, r *clusterpb.ListEventsRequest,
) (*clusterpb.ListEventsResponse, error) {
	return answer(ctx, s, r, (*Server).ListEvents, clusterpb.ClusterClient.ListEvents)
}

// Upgrade implements clusterpb.ClusterServer.
func (s *ClusterService) Upgrade(
	ctx context.Context, r *clusterpb.UpgradeRequest,
) (*clusterpb.UpgradeResponse, error) {
	return answer(ctx, s, r, in((*Server).Upgrade, (*upgrade.Upgrade).Call),
		clusterpb.ClusterClient.Upgrade)
}

// SetPlacement implements clusterpb.ClusterServer.
func (s *ClusterService) SetPlacement(
	ctx context.Context, r *clusterpb.SetPlacementRequest,
) (*clusterpb.SetPlacementResponse, error) {
	return answer(ctx, s, r, (*Server).SetPlacement, clusterpb.ClusterClient.SetPlacement)
}

// ListNodes implements clusterpb.ClusterServer.
func (s *ClusterService) ListNodes(
	ctx context.Context, r *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	return answer(ctx, s, r, (*Server).ListNodes, clusterpb.ClusterClient.ListNodes)
}

// ListKeyspaces implements clusterpb.ClusterServer.
func (s *ClusterService) ListKeyspaces(
	ctx context.Context, r *clusterpb.ListKeyspacesRequest,
) (*clusterpb.ListKeyspacesResponse, error) {
	return answer(ctx, s, r, (*Server).ListKeyspaces, clusterpb.ClusterClient.ListKeyspaces)
}

// ListPartitions implements clusterpb.ClusterServer.
func (s *ClusterService) ListPartitions(
	r *clusterpb.ListPartitionsRequest, stream clusterpb.Cluster_ListPartitionsServer,
) error {
	ctx := stream.Context()
	_, err := answer(ctx, s, r,
		func(core *Server, ctx context.Context, r *clusterpb.ListPartitionsRequest) (struct{}, error) {
			return struct{}{}, core.ListPartitions(ctx, r, stream.Send)
		},
		func(_ clusterpb.ClusterClient, ctx context.Context, r *clusterpb.ListPartitionsRequest,
			_ ...grpc.CallOption) (struct{}, error) {
			return struct{}{}, s.config.Client.ListPartitions(ctx, r, stream.Send)
		})
	return err
}

// SetConsumer implements clusterpb.ClusterServer. It returns when the change is recorded. The nodes
// learn shortly afterwards which history is protected for the consumer.
func (s *ClusterService) SetConsumer(
	ctx context.Context, r *clusterpb.SetConsumerRequest,
) (*clusterpb.SetConsumerResponse, error) {
	return answer(ctx, s, r, in((*Server).Consumers, (*consumer.Keeper).Set),
		clusterpb.ClusterClient.SetConsumer)
}

// GetConsumer implements clusterpb.ClusterServer.
func (s *ClusterService) GetConsumer(
	ctx context.Context, r *clusterpb.GetConsumerRequest,
) (*clusterpb.GetConsumerResponse, error) {
	return answer(ctx, s, r, in((*Server).Consumers, (*consumer.Keeper).Get),
		clusterpb.ClusterClient.GetConsumer)
}

// ListConsumers implements clusterpb.ClusterServer.
func (s *ClusterService) ListConsumers(
	ctx context.Context, r *clusterpb.ListConsumersRequest,
) (*clusterpb.ListConsumersResponse, error) {
	return answer(ctx, s, r, in((*Server).Consumers, (*consumer.Keeper).List),
		clusterpb.ClusterClient.ListConsumers)
}

// DeleteConsumer implements clusterpb.ClusterServer.
func (s *ClusterService) DeleteConsumer(
	ctx context.Context, r *clusterpb.DeleteConsumerRequest,
) (*clusterpb.DeleteConsumerResponse, error) {
	return answer(ctx, s, r, in((*Server).Consumers, (*consumer.Keeper).Delete),
		clusterpb.ClusterClient.DeleteConsumer)
}

// ListCore implements clusterpb.ClusterServer.
func (s *ClusterService) ListCore(
	ctx context.Context, r *clusterpb.ListCoreRequest,
) (*clusterpb.ListCoreResponse, error) {
	return answer(ctx, s, r, in((*Server).Membership, (*membership.Membership).List),
		clusterpb.ClusterClient.ListCore)
}

// ChangeCore implements clusterpb.ClusterServer. It returns when the change is recorded. ListCore
// shows its progress.
func (s *ClusterService) ChangeCore(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	return answer(ctx, s, r, in((*Server).Membership, (*membership.Membership).Change),
		clusterpb.ClusterClient.ChangeCore)
}
