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

// etcdServices are the services of the etcd v3 API. Every server has them: those that have a part
// of the coordination store answer, and the others pass calls on.
var etcdServices = []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Watch_ServiceDesc,
	&pb.Lease_ServiceDesc, &pb.Cluster_ServiceDesc, &pb.Maintenance_ServiceDesc,
	&pb.Auth_ServiceDesc, &v3lockpb.Lock_ServiceDesc, &v3electionpb.Election_ServiceDesc,
	&coordpb.Import_ServiceDesc, &coordpb.Permissions_ServiceDesc, &coordpb.Renewals_ServiceDesc,
	&coordpb.Clock_ServiceDesc, &grpc_health_v1.Health_ServiceDesc}

// calledServices are those of them that clients may also call on connections of requests.
var calledServices = []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Lease_ServiceDesc,
	&coordpb.Renewals_ServiceDesc, &coordpb.Clock_ServiceDesc}

// maxRevisionBytes leaves room for the rest of a message: gRPC sends none of more than 256 MiB.
const maxRevisionBytes = 128 << 20

// MostRequestBytes is the most that ServerConfig.MaxRequestBytes can be: a command of the store has
// no room for more.
const MostRequestBytes = store.MaxCommandBytes - 64<<10

// LeastWatchProgress is the shortest ServerConfig.WatchProgressInterval.
const LeastWatchProgress = watches.MinProgressInterval

// etcdAPI serves the etcd v3 API on a server: from the server's part of the coordination store, or
// by a member of the core.
type etcdAPI struct {
	*environment
	member *coreMember
	// The services are registered at once, and the member's own answer once they can.
	late.Services
	// clients names the clients of calls that are passed on.
	clients *passedon.Clients
	// forwarder passes calls on while this server does not answer them.
	forwarder *forward.Forwarder
	// cluster shows and changes the members; nil until the server has a part of the coordination
	// store.
	cluster atomic.Pointer[etcdmembers.Cluster]
	// answers bounds the memory of answers on their way to clients.
	answers *limit.ResponseBudget
	// watcher measures the leader and the other members for etcd's metrics.
	watcher *etcdmetrics.Watcher
}

var _ etcdServer = (*etcdAPI)(nil)

// serve implements etcdServer.
func (a *etcdAPI) serve(p *corePart, g *host.Group) error {
	part := p.coordination.Store()
	member := uint64(a.directory.Identity().Server)
	temporary := "" // a file that etcd's format is written to is one of the operating system
	if a.config.FS == vfs.Default {
		temporary = a.directory.Sub("core")
	}
	part.SetQuota(store.Quota{Bytes: uint64(max(0, a.config.CoreQuota)), Member: member})
	alarm := spacealarm.New(spacealarm.Config{Member: member,
		Log: p.databases.Log, State: p.databases.State, Store: part,
		Unknowing: p.server.Membership().UnknowingMembers, Logger: a.config.Logger})
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
	// Its streams end with the gRPC server, before the store does.
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

// newCallServer makes the server of calls of the etcd API on connections of requests. The member
// that leads answers them with the fewest steps in between, and reads there without waiting.
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

// withoutCoordination makes the description of a service whose calls are passed on. This server
// itself answers where the members are, although it has no part of the coordination store.
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

// whereMembersAre lists the members that this server knows of, by their addresses alone; nil: it
// knows of none. It says nothing that the refusal of other calls does not say.
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

// noCoordination says why a server that has no part of the coordination store does not answer a
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

// watched is what etcd's metrics of the leader and the other members are measured by.
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

// waitCoordination waits until a member of the core answers the etcd API. A server that is upgraded
// may not do so for long, so its readiness does not depend on it; that of a whole cluster does.
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
