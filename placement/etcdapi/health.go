package etcdapi

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

var (
	errAlarm      = errors.New("ALARM")
	errLeaderless = errors.New("RAFT NO LEADER")
	errCorrupt    = errors.New("alarm activated: CORRUPT")
)

// Healthy returns why this member does not serve, in etcd's words; nil if it serves. To serve it
// needs that no alarm is raised, except those of the excluded names (NOSPACE, CORRUPT), and a
// leader and a quorum, or if serializable, this member alone.
func (s *Services) Healthy(
	ctx context.Context, serializable bool, excluded map[string]bool,
) error {
	for _, alarm := range s.Store.Alarms() {
		if name := fromAlarm(alarm).Alarm.String(); !excluded[name] {
			return fmt.Errorf("%w %s", errAlarm, name)
		}
	}
	if !serializable {
		if l, _ := s.Store.Leadership(); l.Leader == 0 {
			return errLeaderless
		}
	}
	if err := s.Readable(ctx, serializable); err != nil {
		return rangeError(err)
	}
	return nil
}

// healthServer is the Health service. A server that passes calls on asks it for the health of this
// member (coordpb.HealthOf).
type healthServer struct {
	grpc_health_v1.HealthServer
	services *Services
}

// Check implements grpc_health_v1.HealthServer. Alarms are raised at all members alike. For any
// other problem of this member the code is Unavailable, and another member may be healthy.
func (s *healthServer) Check(
	ctx context.Context, r *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	serializable, excluded, ok := coordpb.IsHealthOf(r.Service)
	if !ok {
		return s.HealthServer.Check(ctx, r)
	}
	if s.services.Backend.Cluster.Learner() {
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	err := s.services.Healthy(ctx, serializable, excluded)
	switch {
	case errors.Is(err, errAlarm):
		return nil, status.Error(codes.FailedPrecondition, "etcdserver: "+err.Error())
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unavailable, "etcdserver: "+err.Error())
	}
	return &grpc_health_v1.HealthCheckResponse{
		Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// Readable returns an error if a client could not read: this member's own state, if serializable,
// or otherwise everything acknowledged anywhere. It ignores users and rights.
func (s *Services) Readable(ctx context.Context, serializable bool) error {
	if !serializable {
		if err := s.Confirm(ctx); err != nil {
			return err
		}
	}
	_, release, err := s.Store.ReadTxnAs(ctx, nil, translate.One(&storepb.Op{Op: &storepb.Op_Range{
		Range: &storepb.Range{Key: []byte{0}, KeysOnly: true, Limit: 1}}}))
	release()
	return translate.Error(ctx, err)
}

// Corrupt returns an error if the alarm CORRUPT is raised.
func (s *Services) Corrupt() error {
	for _, alarm := range s.Store.Alarms() {
		if alarm.Type == storepb.Alarm_CORRUPT {
			return errCorrupt
		}
	}
	return nil
}

func rangeError(err error) error {
	return fmt.Errorf("RANGE ERROR:%s", status.Convert(err).Message())
}

// Versions returns the versions of etcd that clients see: of the server, the cluster, and the
// storage.
func (s *Services) Versions() (server, cluster, storage string) {
	minor := minorVersion + ".0"
	return Version, minor, minor
}
