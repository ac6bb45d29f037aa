package etcdapi

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/lockqueue"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/users"
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
	// Import imports the state of another store; etcd has no such service.
	Import coordpb.ImportServer
	// Permissions are the permissions for the data of keyspaces; etcd has no such service.
	Permissions coordpb.PermissionsServer
	// Renewals renews many leases with one call; etcd has no such service.
	Renewals coordpb.RenewalsServer
	// Clock returns the time according to the clocks of the members; etcd has no such service.
	Clock coordpb.ClockServer
	// Health reports whether this server serves. It is registered unless it is nil: a server whose
	// port already has a health service sets it to nil.
	Health grpc_health_v1.HealthServer

	// shared contains the Authorizer, which also decides about calls of other services.
	*shared
	snapshots *snapshots
}

// shared is the common part of all services.
type shared struct {
	Config
	*authorize.Authorizer
}

// Close unregisters the metrics, and waits until no snapshot is being sent. The gRPC server must
// have been stopped.
func (s *Services) Close() {
	s.snapshots.running.Wait()
	s.Authorizer.Close()
}

// New makes the services, except for Watch.
func New(config Config) (*Services, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	b := &backend.Backend{Store: config.Store, Cluster: config.Cluster}
	authorizer, err := authorize.New(b, authorize.Config{Callers: config.Callers,
		CertificateUsers: config.CertificateUsers, Now: config.Now, Logger: config.Logger,
		Registerer: config.Registerer})
	if err != nil {
		return nil, err
	}
	auth := users.New(authorizer, users.Config{Keyspaces: config.Keyspaces,
		Passwords: config.Passwords, MaxRequestBytes: config.MaxRequestBytes, Logger: config.Logger})
	all := &shared{config, authorizer}
	kv, lease := &kvServer{shared: all}, &leaseServer{shared: all}
	lock, election := lockqueue.New(b, kv, lease)
	maintenance := &maintenanceServer{shared: all, snapshots: snapshots{
		sending: make(chan struct{}, maxSnapshots), writing: make(chan struct{}, 1)}}
	services := &Services{
		KV:          kv,
		Lease:       lease,
		Lock:        lock,
		Election:    election,
		Cluster:     &clusterServer{shared: all},
		Maintenance: maintenance,
		Auth:        auth,
		Import:      &importServer{shared: all, users: auth, kv: kv},
		Permissions: auth.Permissions(),
		Renewals:    &renewalsServer{leaseServer: lease},
		Clock:       &clockServer{shared: all},
		shared:      all,
		snapshots:   &maintenance.snapshots,
	}
	healthy := health.NewServer()
	healthy.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	services.Health = &healthServer{healthy, services}
	return services, nil
}

// Register registers the services at a gRPC server. The server should accept messages of
// Config.MaxRequestBytes plus RequestOverheadBytes.
func (s *Services) Register(server grpc.ServiceRegistrar) {
	guarded := registrar{server, &guard{shared: s.shared, began: time.Now()}}
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
