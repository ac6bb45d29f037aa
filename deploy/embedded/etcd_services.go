package embedded

import (
	"context"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
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

// serveEtcd serves the etcd v3 API from this server's part of the coordination store.
func (s *Server) serveEtcd(
	p *corePart, g *host.Group, registerer prometheus.Registerer,
) error {
	part := p.coordination.Store()
	temporary := "" // a file that etcd's format is written to is one of the operating system
	if s.config.FS == vfs.Default {
		temporary = s.directory.Sub("core")
	}
	part.SetQuota(store.Quota{Bytes: uint64(max(0, s.config.CoreQuota)),
		Member: uint64(s.directory.Identity().Server)})
	alarm := spacealarm.New(spacealarm.Config{Member: uint64(s.directory.Identity().Server),
		Log: p.databases.Log, State: p.databases.State, Store: part,
		Unknowing: p.server.Membership().UnknowingMembers, Logger: s.config.Logger})
	cluster := &etcdCluster{server: s, core: p, store: part, group: g, space: alarm,
		known: g.Committed()}
	services, err := etcdapi.New(etcdapi.Config{Store: part, Random: randomReader(s.config.Random),
		Cluster: cluster, Limits: etcdapi.Limits{MaxRequestBytes: s.config.MaxRequestBytes,
			MaxOperations: s.config.MaxOperations, Quota: s.config.CoreQuota},
		TemporaryDirectory: temporary, Answers: s.answers, Callers: etcdCallers{s},
		CertificateUsers: s.tls != nil && s.config.TLSCA != "", Keyspaces: guardedKeyspaces{s},
		Logger: s.config.Logger, Registerer: registerer})
	if err != nil {
		return err
	}
	p.coordination.services.Store(services)
	s.etcdCluster.Store(cluster)
	s.running.Go(func() { s.etcdWatcher.Run(s.ctx, s.etcdWatched(cluster)) })
	// Its streams end with the gRPC server, before the store does.
	watches, err := watches.New(watches.Config{Store: part, Cluster: cluster,
		Random:           randomReader(s.config.Random),
		ProgressInterval: s.config.WatchProgressInterval,
		MaxRevisionBytes: int(min(maxRevisionBytes, s.memory.Answers/2)),
		Logger:           s.config.Logger})
	if err != nil {
		return err
	}
	services.Watch = watches
	p.coordination.watch.Store(watches)
	s.services.etcd.ready = cluster.filled
	s.services.etcd.begin(services.Register)
	alarm.Start(s.ctx)
	p.coordination.spaceAlarm.Store(alarm)
	return nil
}

// newCallServer makes the server of calls of the etcd API on connections of requests. The member
// that leads answers them with the fewest steps in between, and reads there without waiting.
func (s *Server) newCallServer() *rpc.CallServer {
	return rpc.NewCallServer(rpc.CallServerConfig{
		Better: func() string {
			if c := s.etcdCluster.Load(); c != nil && c.filled() {
				return c.leaderElsewhere()
			}
			return s.forwarder.Member()
		},
		Quick: func(method string) bool {
			c := s.etcdCluster.Load()
			if method != pb.KV_Range_FullMethodName || c == nil {
				return false
			}
			l, _ := c.store.Leadership()
			return l.Serving
		},
		Share: func(ctx context.Context) (context.Context, func()) {
			return s.etcdCluster.Load().store.WithSharedRead(ctx)
		},
	})
}

// withoutCoordination makes the description of a service whose calls are passed on, but for the
// calls that this server answers by itself although it has no part of the coordination store.
func (s *Server) withoutCoordination(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	passing := s.forwarder.Describe(d)
	if d.ServiceName != pb.Cluster_ServiceDesc.ServiceName {
		return passing
	}
	for i := range passing.Methods {
		m := &passing.Methods[i]
		if pass := m.Handler; m.MethodName == "MemberList" {
			m.Handler = func(service any, ctx context.Context, decode func(any) error,
				interceptor grpc.UnaryServerInterceptor) (any, error) {
				if list := s.whereMembersAre(); list != nil && firstOf(ctx, coordpb.FindMembers) != "" {
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
func (s *Server) whereMembersAre() *pb.MemberListResponse {
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	list := &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: s.cluster.Load()}}
	for _, address := range s.coreList() {
		at := []string{scheme + "://" + address}
		list.Members = append(list.Members, &pb.Member{Name: address, PeerURLs: at, ClientURLs: at})
	}
	if len(list.Members) == 0 {
		return nil
	}
	return list
}

// coreList lists the members of the core that this server knows of.
func (s *Server) coreList() []string {
	return distinct(slices.Concat(s.members.All(), s.core.Core()))
}

// noCoordination says why a server that has no part of the coordination store does not answer a
// call of the etcd API.
func (s *Server) noCoordination() error {
	core := s.coreList()
	why := "this server is not a member of the core"
	switch state := s.coreState.Load(); {
	case s.CoordinationErr() != nil:
		why = "this server's part of the coordination store failed; its log says why"
	case s.config.has(RoleCore) && (state == coreLooking || state == coreMember):
		why = "this server's part of the coordination store is not open yet"
	case state == coreRemoved:
		why = "this server was removed from the core"
	}
	return status.Errorf(codes.Unavailable, "etcdserver: %s; the members of the core are %s", why,
		strings.Join(core, ", "))
}
