package embedded

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/range/node"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// gRPC wants its services before it serves, but a server has to answer (that a core is forming,
// that a node is registering) before all of its parts exist. The types here are registered at once
// and pass on to what is there by then.

var errNoMember = status.Error(codes.Unavailable, "this server is not a member of the core at "+
	"present: it is starting, or was removed, or offers itself")

// services are those whose parts come later.
type services struct {
	server *Server
	node   atomic.Pointer[node.Node]
	core   coreSwitch
	etcd   lateServices
}

func (s *services) setCore(c *server.Server) { s.core.server.Store(c) }

// wake has the node send a heartbeat soon, if it is the one that is meant.
func (s *services) wake(r *clusterpb.WakeRequest) {
	if n := s.node.Load(); n != nil && r.GetCluster() == s.server.cluster.Load() &&
		r.GetNode() == uint64(n.ID()) {
		n.Wake()
	}
}

// requiresAuth finds out whether a request needs any right.
func (s *services) requiresAuth(q *kvpb.Request) (requires, lasting bool, refusal *kvpb.Error) {
	if n := s.node.Load(); n != nil {
		return n.RequiresAuth(q)
	}
	// It is refused, also if the node is there by the time it is taken.
	return false, false, &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY, Message: s.noNode()}
}

// permissions finds out what rights a request needs.
func (s *services) permissions(q *kvpb.Request, needed []access.Permission) ([]access.Permission,
	*kvpb.Error) {
	return s.node.Load().Permissions(q, needed) // which is there once it was
}

// noNode says why there is no node.
func (s *services) noNode() string {
	if !s.server.config.has(RoleNode) {
		return "this server holds no data: it is a member of the consistent core only"
	}
	return "this server is starting: it has not joined its cluster yet"
}

// take takes clients' requests.
func (s *services) take(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) rpc.Work {
	if n := s.node.Load(); n != nil {
		return n.Submit(client, batch, reply)
	}
	text := s.noNode()
	for _, r := range batch {
		reply(&kvpb.Response{Id: r.GetId(),
			Error: &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY, Message: text}})
	}
	return nil
}

// coreSwitch passes the Core service on to the member of the core.
type coreSwitch struct {
	clusterpb.UnimplementedCoreServer
	server atomic.Pointer[server.Server]
	// inform takes what the core's leader says of the members. It is set before anything is served.
	inform func(*clusterpb.CoreMembers)
	// wake is for the node of this server; see Wake. It is set before anything is served.
	wake func(*clusterpb.WakeRequest)
}

func (c *coreSwitch) RegisterNode(ctx context.Context,
	r *clusterpb.RegisterNodeRequest) (*clusterpb.RegisterNodeResponse, error) {
	if s := c.server.Load(); s != nil {
		return s.RegisterNode(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreSwitch) Heartbeat(ctx context.Context,
	r *clusterpb.HeartbeatRequest) (*clusterpb.HeartbeatResponse, error) {
	if s := c.server.Load(); s != nil {
		return s.Heartbeat(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreSwitch) Announce(ctx context.Context,
	r *clusterpb.AnnounceRequest) (*clusterpb.AnnounceResponse, error) {
	if s := c.server.Load(); s != nil {
		return s.Announce(ctx, r)
	}
	return nil, errNoMember
}

// Inform is answered by any server.
func (c *coreSwitch) Inform(_ context.Context,
	m *clusterpb.CoreMembers) (*clusterpb.InformResponse, error) {
	c.inform(m)
	return &clusterpb.InformResponse{}, nil
}

// Wake is answered by any server.
func (c *coreSwitch) Wake(_ context.Context,
	r *clusterpb.WakeRequest) (*clusterpb.WakeResponse, error) {
	c.wake(r)
	return &clusterpb.WakeResponse{}, nil
}

func (c *coreSwitch) WatchMetadata(r *clusterpb.WatchMetadataRequest,
	stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	if s := c.server.Load(); s != nil {
		return s.WatchMetadata(r, stream)
	}
	return errNoMember
}

func (c *coreSwitch) Check(ctx context.Context,
	r *clusterpb.CheckRequest) (*clusterpb.MemberHealth, error) {
	if s := c.server.Load(); s != nil {
		return s.Check(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreSwitch) Guarding(ctx context.Context,
	r *clusterpb.GuardingRequest) (*clusterpb.GuardingResponse, error) {
	if s := c.server.Load(); s != nil {
		return s.Guarding(ctx, r)
	}
	return nil, errNoMember
}

// requestTimes makes the metric of how long requests take, and gives what tells it of one.
func requestTimes(r prometheus.Registerer) func(rpc.RequestKind, time.Duration) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_rpc_request_seconds", Help: "How long a request of a client takes on the " +
			"server, waits for locks, disks and other servers included, by the kind of request. One " +
			"request in 64 is timed.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 19)}, []string{"kind"})
	replace(r, seconds)
	var kinds [rpc.RequestKinds]prometheus.Observer
	for k := range rpc.RequestKinds {
		kinds[k] = seconds.WithLabelValues(k.String())
	}
	return func(kind rpc.RequestKind, took time.Duration) { kinds[kind].Observe(took.Seconds()) }
}

// showExpiry makes the metric of when the server's certificate runs out.
func showExpiry(r prometheus.Registerer, files *authn.TLSFiles) {
	replace(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_tls_certificate_expiry_timestamp_seconds", Help: "When the server's " +
			"certificate runs out, in seconds since 1970. Only with TLS.",
	}, func() float64 { return float64(files.Expires().Unix()) }))
}

// replace registers a collector in the place of that of a server that was started before with the
// same registry.
func replace(r prometheus.Registerer, c prometheus.Collector) {
	r.Unregister(c)
	r.MustRegister(c)
}
