package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/nodes"
	"github.com/tidemarkdb/tidemark/placement/server/operators"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// nameTimeout is how long a server waits for a keyspace to reach its own table that the core
	// says exists.
	nameTimeout = 10 * time.Second
	// maxRows bounds the partitions and the leaders of one message of WatchTable.
	maxRows = 2000
)

// ClusterConfig is what a ClusterService is made of. Client and Status must be set. Core and Table
// are asked at every call, since a server serves before its parts are there.
type ClusterConfig struct {
	// Core gives this server's member of the core; nil if there is none, or none yet.
	Core func() *Server
	// Client is the way to the leader.
	Client *coreclient.Client
	// Table gives the node's own copy of the table; nil if there is no node, or none yet. Then the
	// core member's is used.
	Table func() table.Source
	// Status says what this server knows of itself: cluster, node, ready, waiting_for, version,
	// core_trouble. It makes a new value every time.
	Status func() *clusterpb.StatusResponse
	// Viewer is who calls, and so says which bounds of partitions the caller may see; it gives nil
	// for another server, which sees all. nil: everybody does.
	Viewer func(context.Context) *veil.Viewer
	// MaxClockOffset is how far the timestamps of one server may be ahead of another's clock
	// (hlc.Clock.MaxAhead); clients are told. Zero: they are not.
	MaxClockOffset time.Duration
	// SmallTable is up to how many partitions a client is sent the whole table, also if it asks for
	// less; default 1,000, negative: never.
	SmallTable int
	// Registerer takes the service's metrics; nil: they are not shown.
	Registerer prometheus.Registerer
}

// ClusterService is the service Cluster, on any server.
type ClusterService struct {
	clusterpb.UnimplementedClusterServer
	config ClusterConfig
	cut    prometheus.Counter
}

// NewClusterService makes a ClusterService.
func NewClusterService(config ClusterConfig) *ClusterService {
	if config.SmallTable == 0 {
		config.SmallTable = 1000
	}
	s := &ClusterService{config: config}
	s.cut = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidemark_cluster_table_streams_cut_total",
		Help: "Streams of the partition table to clients that were cut off because the client " +
			"did not read.",
	})
	if config.Registerer != nil {
		// A server that was closed and started again in this process goes on counting.
		var there prometheus.AlreadyRegisteredError
		if errors.As(config.Registerer.Register(s.cut), &there) {
			if c, ok := there.ExistingCollector.(prometheus.Counter); ok {
				s.cut = c
			}
		}
	}
	return s
}

func (s *ClusterService) core() *Server {
	if s.config.Core == nil {
		return nil
	}
	return s.config.Core()
}

// table is the best table that there is on this server; nil if there is none.
func (s *ClusterService) table() table.Source {
	if s.config.Table != nil {
		if t := s.config.Table(); t != nil {
			return t
		}
	}
	if core := s.core(); core != nil {
		return core.Table()
	}
	return nil
}

// Status implements clusterpb.ClusterServer. It is answered without asking the core.
func (s *ClusterService) Status(
	context.Context, *clusterpb.StatusRequest,
) (*clusterpb.StatusResponse, error) {
	st := s.config.Status()
	if core := s.core(); core != nil {
		st.Core, st.CoreLeader, st.Members = true, core.meta.LeaderAddress(), core.meta.Members()
		return st, nil
	}
	st.CoreLeader = s.config.Client.Leader()
	for _, address := range s.config.Client.Core() {
		st.Members = append(st.Members, &clusterpb.CoreMember{Address: address})
	}
	return st, nil
}

// answer does a call here if this server leads the core, and passes it on otherwise. What was
// passed on is not passed on again: its sender follows the hint.
func answer[Request, Response any](ctx context.Context, s *ClusterService, r Request,
	here func(*Server, context.Context, Request) (Response, error),
	there func(clusterpb.ClusterClient, context.Context, Request,
		...grpc.CallOption) (Response, error),
) (Response, error) {
	ctx, cancel := sooner(ctx)
	defer cancel()
	if core := s.core(); core != nil && ctx.Value(passOn{}) == nil {
		response, err := here(core, ctx, r)
		if status.Code(err) == codes.DeadlineExceeded {
			// It leads, or did until a moment ago, and the others did not agree in time.
			if trouble := core.Trouble(); trouble != nil {
				trouble.Cause = err
				return response, trouble
			}
		}
		if _, refused, _ := hint.Of(err); !refused || coreclient.IsForwarded(ctx) {
			return response, err
		}
	} else if coreclient.IsForwarded(ctx) {
		var none Response
		return none, coreclient.ErrNoMember
	}
	return there(s.config.Client.ClusterClient, ctx, r)
}

// in is a call that a room of the Server does.
func in[Room, Request, Response any](room func(*Server) Room,
	call func(Room, context.Context, Request) (Response, error),
) func(*Server, context.Context, Request) (Response, error) {
	return func(s *Server, ctx context.Context, r Request) (Response, error) {
		return call(room(s), ctx, r)
	}
}

type passOn struct{}

// PassOn is the context of a call that a server passes on, and does not do itself, whether or not
// it leads the core by then.
func PassOn(ctx context.Context) context.Context {
	return context.WithValue(ctx, passOn{}, true)
}

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

// AlterKeyspace implements clusterpb.ClusterServer. It returns when the change is recorded; the
// nodes hear of it a moment later.
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

// MoveReplica implements clusterpb.ClusterServer. It returns when the move is recorded;
// ListOperators shows how it goes on.
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

// TransferLeader implements clusterpb.ClusterServer. It returns when the transfer is recorded;
// ListOperators shows how it goes on.
func (s *ClusterService) TransferLeader(
	ctx context.Context, r *clusterpb.TransferLeaderRequest,
) (*clusterpb.TransferLeaderResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Transfer),
		clusterpb.ClusterClient.TransferLeader)
}

// SplitPartition implements clusterpb.ClusterServer. It returns when the split is recorded;
// ListOperators shows how it goes on.
func (s *ClusterService) SplitPartition(
	ctx context.Context, r *clusterpb.SplitPartitionRequest,
) (*clusterpb.SplitPartitionResponse, error) {
	return answer(ctx, s, r, in((*Server).Operators, (*operators.Operators).Split),
		clusterpb.ClusterClient.SplitPartition)
}

// MergePartition implements clusterpb.ClusterServer. It returns when the merge is recorded;
// ListOperators shows how it goes on.
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

// WatchTable implements clusterpb.ClusterServer, from this server's own table.
func (s *ClusterService) WatchTable(
	r *clusterpb.WatchTableRequest, stream clusterpb.Cluster_WatchTableServer,
) error {
	ctx := stream.Context()
	if r.Keyspace != "" && !keyspaces.ValidName(r.Keyspace) {
		return meta.UnknownKeyspace(r.Keyspace)
	}
	source := s.table()
	if source == nil {
		return status.Error(codes.Unavailable, "this server is starting: it has no partition table yet")
	}
	return table.SendTo(ctx, s.cut.Inc, stream.Send,
		func(ctx context.Context, send func(*clusterpb.TableUpdate) error) error {
			viewer := s.viewer(ctx)
			return s.watch(ctx, r.Keyspace, send, func(ctx context.Context, emit veil.Emit) error {
				return viewer.Follow(ctx, func(ctx context.Context, emit veil.Emit) error {
					return source.Subscribe(ctx, emit)
				}, emit)
			})
		})
}

// watch sends the table, or what belongs to one keyspace, as it changes.
func (s *ClusterService) watch(
	ctx context.Context, keyspace string, send veil.Emit,
	subscribe func(context.Context, veil.Emit) error,
) error {
	if keyspace == "" {
		if err := s.sendClockOffset(send); err != nil {
			return err
		}
		return subscribe(ctx, func(u *clusterpb.TableUpdate) error {
			return sendPieces(u, send)
		})
	}
	for {
		err := s.watchKeyspace(ctx, keyspace, send, subscribe)
		if !errors.Is(err, errArrived) {
			return err
		}
	}
}

// sendClockOffset sends the first message of a stream.
func (s *ClusterService) sendClockOffset(send func(*clusterpb.TableUpdate) error) error {
	d := s.config.MaxClockOffset
	if d <= 0 {
		return nil
	}
	return send(&clusterpb.TableUpdate{MaxClockOffsetMicros: uint64(d.Microseconds())})
}

// errArrived says that a keyspace has come that this server had not heard of: everything about it
// can be sent now.
var errArrived = errors.New("the keyspace has arrived")

// watchKeyspace sends what belongs to one keyspace. Until that is known nothing is sent, so that
// the caller gets an error and nothing else if it does not exist.
func (s *ClusterService) watchKeyspace(
	ctx context.Context, name string, send veil.Emit,
	subscribe func(context.Context, veil.Emit) error,
) error {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	f := filter{name: name, partitions: map[uint64]struct{}{}}
	var held []*clusterpb.TableUpdate
	var overdue *time.Timer
	err := subscribe(limited, func(u *clusterpb.TableUpdate) error {
		u = f.apply(u)
		switch {
		case f.id != 0 && overdue != nil:
			return errArrived
		case f.id != 0:
			for _, u := range append(held, u) {
				if err := sendPieces(u, send); err != nil {
					return err
				}
			}
			held = nil
		case overdue != nil:
		case u.Complete:
			if err := s.mustExist(ctx, name); err != nil {
				return err
			}
			overdue = time.AfterFunc(nameTimeout, cancel)
		default:
			held = append(held, u)
		}
		return nil
	})
	if overdue != nil && !overdue.Stop() && ctx.Err() == nil && !errors.Is(err, errArrived) {
		return status.Errorf(codes.Unavailable,
			"keyspace %s exists, and this server has not heard of it yet; try another or again", name)
	}
	return err
}

// mustExist asks the core for a keyspace that this server has not heard of.
func (s *ClusterService) mustExist(ctx context.Context, name string) error {
	list, err := s.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	for _, info := range list.Keyspaces {
		if info.Keyspace.Name == name && info.Keyspace.State != clusterpb.KeyspaceState_DROPPING {
			return nil
		}
	}
	return meta.UnknownKeyspace(name)
}

// filter keeps of a table what belongs to one keyspace, and all nodes.
type filter struct {
	name string
	// id is 0 until the keyspace has come.
	id         uint32
	partitions map[uint64]struct{}
}

func (f *filter) apply(u *clusterpb.TableUpdate) *clusterpb.TableUpdate {
	out := &clusterpb.TableUpdate{
		Nodes: u.Nodes, RemovedNodes: u.RemovedNodes, Revision: u.Revision, Complete: u.Complete,
		Reset_: u.Reset_, Cluster: u.Cluster,
	}
	for _, k := range u.Keyspaces {
		if f.id == 0 && k.Name == f.name && k.State != clusterpb.KeyspaceState_DROPPING {
			f.id = k.Id
		}
		if k.Id == f.id {
			out.Keyspaces = append(out.Keyspaces, k)
		}
	}
	for _, id := range u.RemovedKeyspaces {
		if id == f.id {
			out.RemovedKeyspaces = append(out.RemovedKeyspaces, id)
		}
	}
	for _, p := range u.Partitions {
		if f.id != 0 && p.Keyspace == f.id {
			out.Partitions = append(out.Partitions, p)
			f.partitions[p.Id] = struct{}{}
		}
	}
	for _, l := range u.Leaders {
		if _, ok := f.partitions[l.Partition]; ok {
			out.Leaders = append(out.Leaders, l)
		}
	}
	for _, id := range u.RemovedPartitions {
		if _, ok := f.partitions[id]; ok {
			out.RemovedPartitions = append(out.RemovedPartitions, id)
			delete(f.partitions, id)
		}
	}
	return out
}

// sendPieces sends an update in messages of bounded size. The first is the one that resets, the
// last the one that completes.
func sendPieces(u *clusterpb.TableUpdate, send func(*clusterpb.TableUpdate) error) error {
	for len(u.Partitions) > maxRows || len(u.Leaders) > maxRows {
		p, l := min(maxRows, len(u.Partitions)), min(maxRows, len(u.Leaders))
		piece := &clusterpb.TableUpdate{Partitions: u.Partitions[:p], Leaders: u.Leaders[:l],
			Reset_: u.Reset_, Cluster: u.Cluster}
		u = &clusterpb.TableUpdate{
			Nodes: u.Nodes, Keyspaces: u.Keyspaces, Partitions: u.Partitions[p:], Leaders: u.Leaders[l:],
			RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
			RemovedPartitions: u.RemovedPartitions,
			Revision:          u.Revision, Complete: u.Complete, Cluster: u.Cluster,
			Followed: u.Followed, FollowsAll: u.FollowsAll,
		}
		if err := send(piece); err != nil {
			return err
		}
	}
	return send(u)
}

// answerMargin is how much sooner than its caller a server gives up, so that the caller hears why:
// a quarter of the time that is left, but no more than this.
const answerMargin = 250 * time.Millisecond

// sooner ends before the context of a call does.
func sooner(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(answerMargin, time.Until(deadline)/4)))
}

// SetConsumer implements clusterpb.ClusterServer. It returns when the change is recorded; the nodes
// hear of what it protects a moment later.
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

// ChangeCore implements clusterpb.ClusterServer. It returns when the change is recorded; ListCore
// shows how it goes on.
func (s *ClusterService) ChangeCore(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	return answer(ctx, s, r, in((*Server).Membership, (*membership.Membership).Change),
		clusterpb.ClusterClient.ChangeCore)
}
