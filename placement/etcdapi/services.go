package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Services are the gRPC servers of the etcd v3 API.
type Services struct {
	KV          pb.KVServer
	Lease       pb.LeaseServer
	Cluster     pb.ClusterServer
	Maintenance pb.MaintenanceServer
	Lock        v3lockpb.LockServer
	Election    v3electionpb.ElectionServer
	// Watch is registered if it is set.
	Watch pb.WatchServer
	Auth  pb.AuthServer
	// Import brings the state of another store in; it is none of etcd's services.
	Import coordpb.ImportServer
	// Permissions are those for the data of keyspaces; none of etcd's services either.
	Permissions coordpb.PermissionsServer
	// Renewals renews many leases with one call; none of etcd's services either.
	Renewals coordpb.RenewalsServer
	// Clock tells the time by the clocks of the members; none of etcd's services either.
	Clock coordpb.ClockServer
	// Health says that this server serves. It is registered unless it is nil: a server whose port
	// has a health service already sets it to nil.
	Health grpc_health_v1.HealthServer

	guard     *guard
	snapshots *snapshots
}

// Close takes back the metrics, and waits until no snapshot is sent. The gRPC server must have been
// stopped.
func (s *Services) Close() {
	s.snapshots.running.Wait()
	s.guard.metrics.close()
}

// New makes the services, except for Watch.
func New(config Config) (*Services, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	b := &backend{Config: config, passwords: passwords.New(config.Passwords), metrics: metrics,
		uses: newTokenUses(config.TokenTTL, config.Now)}
	healthy := health.NewServer()
	healthy.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	kv, lease := &kvServer{backend: b}, &leaseServer{backend: b}
	maintenance := &maintenanceServer{backend: b, snapshots: snapshots{
		sending: make(chan struct{}, maxSnapshots), writing: make(chan struct{}, 1)}}
	line := &line{backend: b, kv: kv, lease: lease}
	services := &Services{
		KV:          kv,
		Lease:       lease,
		Lock:        &lockServer{line: line},
		Election:    &electionServer{line: line},
		Cluster:     &clusterServer{backend: b},
		Maintenance: maintenance,
		Auth:        &authServer{backend: b},
		Import:      &importServer{backend: b},
		Permissions: &permissionsServer{authServer: &authServer{backend: b}},
		Renewals:    &renewalsServer{leaseServer: lease},
		Clock:       &clockServer{backend: b},
		guard:       &guard{backend: b},
		snapshots:   &maintenance.snapshots,
	}
	services.Health = &healthServer{healthy, services}
	return services, nil
}

// Register hands the services to a gRPC server. The server should accept messages of
// Config.MaxRequestBytes and RequestOverheadBytes.
func (s *Services) Register(server grpc.ServiceRegistrar) {
	guarded := registrar{server, s.guard}
	pb.RegisterKVServer(guarded, s.KV)
	pb.RegisterLeaseServer(guarded, s.Lease)
	pb.RegisterClusterServer(guarded, s.Cluster)
	pb.RegisterMaintenanceServer(guarded, s.Maintenance)
	pb.RegisterAuthServer(guarded, s.Auth)
	v3lockpb.RegisterLockServer(guarded, s.Lock)
	v3electionpb.RegisterElectionServer(guarded, s.Election)
	coordpb.RegisterImportServer(guarded, s.Import)
	coordpb.RegisterPermissionsServer(guarded, s.Permissions)
	coordpb.RegisterRenewalsServer(guarded, s.Renewals)
	coordpb.RegisterClockServer(guarded, s.Clock)
	if s.Watch != nil {
		pb.RegisterWatchServer(guarded, s.Watch)
	}
	if s.Health != nil {
		grpc_health_v1.RegisterHealthServer(server, s.Health)
	}
}
