package embedded

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdkeyspaces"
	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmembers"
	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
	"github.com/tidemarkdb/tidemark/deploy/embedded/late"
	"github.com/tidemarkdb/tidemark/deploy/embedded/passedon"
	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
)

// etcdServices are the services of the etcd v3 API. Every server has them. Servers with a part of
// the coordination store answer calls, and the others forward them.
var etcdServices = []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Watch_ServiceDesc,
	&pb.Lease_ServiceDesc, &pb.Cluster_ServiceDesc, &pb.Maintenance_ServiceDesc,
	&pb.Auth_ServiceDesc, &v3lockpb.Lock_ServiceDesc, &v3electionpb.Election_ServiceDesc,
	&coordpb.Import_ServiceDesc, &coordpb.Permissions_ServiceDesc, &coordpb.Renewals_ServiceDesc,
	&coordpb.Clock_ServiceDesc, &grpc_health_v1.Health_ServiceDesc}

// calledServices are the services that clients may also call on connections of requests.
var calledServices = []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Lease_ServiceDesc,
	&coordpb.Renewals_ServiceDesc, &coordpb.Clock_ServiceDesc}

// maxRevisionBytes is less than the maximum size of a message, 256 MiB, so that the rest of the
// message fits.
const maxRevisionBytes = 128 << 20

// MostRequestBytes is the maximum of ServerConfig.MaxRequestBytes: a larger request would not fit
// into a command of the store.
const MostRequestBytes = store.MaxCommandBytes - 64<<10

// LeastWatchProgress is the shortest ServerConfig.WatchProgressInterval.
const LeastWatchProgress = watches.MinProgressInterval

// etcdAPI serves the etcd v3 API on a server: from the server's part of the coordination store, or
// through a member of the core.
type etcdAPI struct {
	*environment
	member *coreMember
	// The services are registered at the start. The member's own services answer as soon as they are
	// ready.
	late.Services
	// clients identifies the clients of forwarded calls.
	clients *passedon.Clients
	// forwarder forwards calls while this server does not answer them.
	forwarder *forward.Forwarder
	// cluster lists and changes the members. It is nil until the server has a part of the coordination
	// store.
	cluster atomic.Pointer[etcdmembers.Cluster]
	// answers limits the memory of answers that are being sent to clients.
	answers *limit.ResponseBudget
	// watcher measures the leader and the other members for etcd's metrics.
	watcher *etcdmetrics.Watcher
}

var _ etcdServer = (*etcdAPI)(nil)

// serve implements etcdServer.
func (a *etcdAPI) serve(p *corePart, g *host.Group) error {
	part := p.coordination.Store()
	member := uint64(a.directory.Identity().Server)
	temporary := "" // a file in etcd's format must be a file of the operating system
	if a.config.FS == vfs.Default {
		temporary = a.directory.Sub("core")
	}
	part.SetQuota(store.Quota{Bytes: uint64(max(0, a.config.CoreQuota)), Member: member})
	alarm := spacealarm.New(spacealarm.Config{Member: member,
		Log: p.databases.Log, State: p.databases.State, Store: part,
		Unknowing: p.server.Membership().Versions().Unknowing, Logger: a.config.Logger})
	cluster := etcdmembers.New(etcdmembers.Config{ID: a.environment.cluster.Load(), Member: member,
		TLS: a.tls != nil, Core: a.core, Known: p.server.Members, Pings: p.host.Clocks().Clocks,
		Space: alarm, Store: part, Group: g})
	services, err := etcdapi.New(etcdapi.Config{Store: part, Random: randomReader(a.config.Random),
		Cluster: cluster, Limits: etcdapi.Limits{MaxRequestBytes: a.config.MaxRequestBytes,
			MaxOperations: a.config.MaxOperations, Quota: a.config.CoreQuota},
		TemporaryDirectory: temporary, Answers: a.answers, Callers: a.clients,
		CertificateUsers: a.tls != nil && a.config.TLSCA != "",
		Keyspaces: etcdkeyspaces.Keyspaces{Core: a.core, Cluster: cluster.ID,
			Timeout: a.config.guardTimeout},
		Logger: a.config.Logger, Registerer: p.registerer})
	if err != nil {
		return err
	}
	p.coordination.services.Store(services)
	a.cluster.Store(cluster)
	a.running.Go(func() { a.watcher.Run(a.ctx, a.watched(cluster)) })
	// The streams of the watch service end with the gRPC server, before the store is closed.
	watches, err := watches.New(watches.Config{Store: part, Cluster: cluster,
		Random:           randomReader(a.config.Random),
		ProgressInterval: a.config.WatchProgressInterval,
		MaxRevisionBytes: int(min(maxRevisionBytes, a.memory.Answers/2)),
		Logger:           a.config.Logger})
	if err != nil {
		return err
	}
	services.Watch = watches
	p.coordination.watch.Store(watches)
	a.Ready = cluster.Filled
	a.Begin(services.Register)
	alarm.Start(a.ctx)
	p.coordination.spaceAlarm.Store(alarm)
	return nil
}

// newCallServer makes the server for calls of the etcd API on connections of requests. The member
// that leads answers such calls in the shortest way, and answers reads without waiting.
func (a *etcdAPI) newCallServer() *rpc.CallServer {
	return rpc.NewCallServer(rpc.CallServerConfig{
		Better: func() string {
			if c := a.cluster.Load(); c != nil && c.Filled() {
				return c.LeaderElsewhere()
			}
			return a.forwarder.Member()
		},
		Quick: func(method string) bool {
			c := a.cluster.Load()
			if method != pb.KV_Range_FullMethodName || c == nil {
				return false
			}
			l, _ := c.Store.Leadership()
			return l.Serving
		},
		Share: func(ctx context.Context) (context.Context, func()) {
			return a.cluster.Load().Store.WithSharedRead(ctx)
		},
	})
}

// withoutCoordination makes the description of a service whose calls are forwarded. This server
// itself answers the request for the list of members, although it has no part of the coordination
// store.
func (a *etcdAPI) withoutCoordination(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	passing := a.forwarder.Describe(d)
	if d.ServiceName != pb.Cluster_ServiceDesc.ServiceName {
		return passing
	}
	for i := range passing.Methods {
		m := &passing.Methods[i]
		if pass := m.Handler; m.MethodName == "MemberList" {
			m.Handler = func(service any, ctx context.Context, decode func(any) error,
				interceptor grpc.UnaryServerInterceptor) (any, error) {
				if list := a.whereMembersAre(); list != nil && passedon.First(ctx, coordpb.FindMembers) != "" {
					return list, decode(&pb.MemberListRequest{})
				}
				return pass(service, ctx, decode, interceptor)
			}
		}
	}
	return passing
}

// whereMembersAre lists the known members by their addresses only. It returns nil if no member is
// known. The answer discloses nothing that the refusal of other calls does not disclose.
func (a *etcdAPI) whereMembersAre() *pb.MemberListResponse {
	scheme := "http"
	if a.tls != nil {
		scheme = "https"
	}
	list := &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: a.environment.cluster.Load()}}
	for _, address := range a.member.addresses() {
		at := []string{scheme + "://" + address}
		list.Members = append(list.Members, &pb.Member{Name: address, PeerURLs: at, ClientURLs: at})
	}
	if len(list.Members) == 0 {
		return nil
	}
	return list
}

// noCoordination returns why a server without a part of the coordination store does not answer a
// call of the etcd API.
func (a *etcdAPI) noCoordination() error {
	core := a.member.addresses()
	why := "this server is not a member of the core"
	switch state := a.member.state.Load(); {
	case a.member.coordinationErr() != nil:
		why = "this server's part of the coordination store failed; its log says why"
	case a.config.has(RoleCore) && (state == lookingForCore || state == memberOfCore):
		why = "this server's part of the coordination store is not open yet"
	case state == removedFromCore:
		why = "this server was removed from the core"
	}
	return status.Errorf(codes.Unavailable, "etcdserver: %s; the members of the core are %s", why,
		strings.Join(core, ", "))
}

// watched returns what etcd's metrics of the leader and the other members measure.
func (a *etcdAPI) watched(c *etcdmembers.Cluster) etcdmetrics.Watched {
	return etcdmetrics.Watched{
		Leader: func() (uint64, <-chan struct{}) {
			l, changed := c.Store.Leadership()
			return uint64(l.Leader), changed
		},
		Peers: c.Peers,
		Ask: func(ctx context.Context, p etcdmetrics.Peer) error {
			conn, err := a.dialer.Conn(p.Address)
			if err != nil {
				return err
			}
			_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx,
				&grpc_health_v1.HealthCheckRequest{})
			return err
		},
	}
}

// waitCoordination waits until a member of the core answers the etcd API. While a server is
// upgraded, its member may not answer for a long time. So the readiness of a server does not depend
// on it, but the readiness of a whole cluster does.
func (a *etcdAPI) waitCoordination(ctx context.Context) error {
	for a.config.has(RoleCore) && !a.config.withoutCoordination && !a.Serving() {
		if err := a.member.coordinationErr(); err != nil {
			return fmt.Errorf("%s failed: %w", coordinationName, err)
		}
		if backoff.Sleep(ctx, foundingLook/5) != nil {
			return fmt.Errorf("%w while waiting for %s to open", context.Cause(ctx), coordinationName)
		}
	}
	return nil
}
