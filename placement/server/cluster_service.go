package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
)

// ClusterConfig has the dependencies and settings of a ClusterService. Client and Status must be
// set. Core and Table are called for every request, because a server serves before its member of
// the core and its node exist.
type ClusterConfig struct {
	// Core returns this server's member of the core. It returns nil if there is no member, or no
	// member yet.
	Core func() *Server
	// Client forwards calls to the leader.
	Client *coreclient.Client
	// Table returns the node's own copy of the table. It returns nil if there is no node, or no node
	// yet. In that case the table of the core member is used.
	Table func() table.Source
	// Status returns what this server knows about itself: cluster, node, ready, waiting_for, version,
	// core_trouble. It returns a new value each time.
	Status func() *clusterpb.StatusResponse
	// LoadHistory returns the recorded load of this server's data node. It is nil if there is no data
	// node.
	LoadHistory func(*clusterpb.LoadHistoryRequest) *clusterpb.LoadHistoryResponse
	// Viewer returns the viewer of a call. The viewer says which bounds of partitions the caller may
	// see. Viewer returns nil if the caller is another server, which may see everything. If Viewer is
	// nil, every caller may see everything.
	Viewer func(context.Context) *veil.Viewer
	// MaxClockOffset is the maximum by which the timestamps of one server may be ahead of another
	// server's clock (hlc.Clock.MaxAhead). It is sent to clients, unless it is zero.
	MaxClockOffset time.Duration
	// SmallTable is a number of partitions. If the table has at most that many, a client gets the
	// whole table, even if it asks for fewer keyspaces. Zero means 1,000. A negative number turns this
	// off.
	SmallTable int
	// Examiner examines servers.
	Examiner Examiner
	// Registerer registers the service's metrics. If it is nil, the metrics are not registered.
	Registerer prometheus.Registerer
}

// ClusterService implements the service Cluster on any server.
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
		// A server that was closed and started again in this process continues the existing counter.
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

// table returns the best table on this server: the node's copy, or else the core member's table. It
// returns nil if there is neither.
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

// LoadHistory implements clusterpb.ClusterServer. It does not ask the core.
func (s *ClusterService) LoadHistory(
	_ context.Context, q *clusterpb.LoadHistoryRequest,
) (*clusterpb.LoadHistoryResponse, error) {
	if s.config.LoadHistory == nil {
		return &clusterpb.LoadHistoryResponse{}, nil
	}
	return s.config.LoadHistory(q), nil
}

// Status implements clusterpb.ClusterServer. It does not ask the core.
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

// answer does a call here if this server leads the core. Otherwise it forwards the call to the
// leader. A forwarded call is not forwarded again: it is answered with a hint, and its sender
// follows the hint.
func answer[Request, Response any](ctx context.Context, s *ClusterService, r Request,
	here func(*Server, context.Context, Request) (Response, error),
	there func(clusterpb.ClusterClient, context.Context, Request,
		...grpc.CallOption) (Response, error),
) (Response, error) {
	ctx, cancel := sooner(ctx)
	defer cancel()
	if core := s.core(); core != nil && ctx.Value(passOn{}) == nil {
		response, err := once(core, ctx, r, here)
		if status.Code(err) == codes.DeadlineExceeded {
			// This member leads, or did until a moment ago, and the other members did not agree in time.
			if trouble := core.Trouble(); trouble != nil {
				trouble.Cause = err
				if outcome.IsUnknown(err) {
					return response, outcome.Doubt(trouble)
				}
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

// once makes a call here, unless it was made and answered before.
func once[Request, Response any](core *Server, ctx context.Context, r Request,
	here func(*Server, context.Context, Request) (Response, error)) (Response, error) {
	var answer Response
	request, ok := any(r).(proto.Message)
	blank, is := any(answer).(proto.Message)
	if !ok || !is || !outcome.Of(request).Once() {
		return here(core, ctx, r)
	}
	message := blank.ProtoReflect().New().Interface()
	ctx, answered, err := core.meta.Once(ctx, outcome.ID(ctx), request, message)
	if err != nil {
		return answer, err
	}
	if answered {
		return message.(Response), nil
	}
	if answer, err = here(core, ctx, r); err == nil || !outcome.Definite(err) {
		return answer, err
	}
	again, failed := core.meta.Refuse(ctx, request, message)
	switch {
	case failed != nil:
		return answer, failed
	case again:
		return message.(Response), nil
	}
	return answer, err
}

// in adapts a call of a room of the Server to a call of the Server.
func in[Room, Request, Response any](room func(*Server) Room,
	call func(Room, context.Context, Request) (Response, error),
) func(*Server, context.Context, Request) (Response, error) {
	return func(s *Server, ctx context.Context, r Request) (Response, error) {
		return call(room(s), ctx, r)
	}
}

type passOn struct{}

// PassOn returns the context of a call that must be forwarded, even if this server leads the core.
func PassOn(ctx context.Context) context.Context {
	return context.WithValue(ctx, passOn{}, true)
}

// answerMargin is the time by which a server gives up before its caller does, so that the caller
// receives the reason. The margin is a quarter of the remaining time, and at most answerMargin.
const answerMargin = 250 * time.Millisecond

// sooner returns a context that ends before the context of a call does.
func sooner(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(answerMargin, time.Until(deadline)/4)))
}
