package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Services are the gRPC servers of the etcd v3 API.
type Services struct {
	KV          pb.KVServer
	Lease       pb.LeaseServer
	Cluster     pb.ClusterServer
	Maintenance pb.MaintenanceServer
	// Watch is registered if it is set.
	Watch pb.WatchServer
	// Auth says that authentication is not enabled.
	Auth pb.AuthServer
	// Import brings the state of another store in; it is none of etcd's services.
	Import coordpb.ImportServer
	// Health says that this server serves. It is registered unless it is nil: a server whose port
	// has a health service already sets it to nil.
	Health grpc_health_v1.HealthServer

	guard *guard
}

// New makes the services, except for Watch.
func New(config Config) (*Services, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	b := &backend{Config: config}
	healthy := health.NewServer()
	healthy.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	return &Services{
		KV:          &kvServer{backend: b},
		Lease:       &leaseServer{backend: b},
		Cluster:     &clusterServer{backend: b},
		Maintenance: &maintenanceServer{backend: b, snapshots: make(chan struct{}, 1)},
		Auth:        &authServer{backend: b},
		Import:      &importServer{backend: b},
		Health:      healthy,
		guard:       &guard{backend: b},
	}, nil
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
	coordpb.RegisterImportServer(guarded, s.Import)
	if s.Watch != nil {
		pb.RegisterWatchServer(guarded, s.Watch)
	}
	if s.Health != nil {
		grpc_health_v1.RegisterHealthServer(server, s.Health)
	}
}
