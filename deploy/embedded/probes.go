package embedded

import (
	"context"
	"errors"
	"net/http"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/probe"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
)

// Probes ask for /livez and /readyz, and clients of etcd ask for /health, at both addresses of a
// server. /livez and /readyz are about the whole server. So a probe that removes the server from
// its clients, or restarts it, has a reason that concerns the server. Etcd's checks can be asked
// for by name.

// serveProbes serves /livez and /readyz. etcd has etcd's checks. It is nil for a process with
// several servers.
func serveProbes(mux *http.ServeMux, ready func() (bool, string), etcd *etcdChecks) {
	live := []probe.Check{{Name: "process", Counts: true,
		Run: func(context.Context) error { return nil }}}
	serves := []probe.Check{{Name: "server", Counts: true, Run: func(context.Context) error {
		if ok, reason := ready(); !ok {
			return errors.New(reason)
		}
		return nil
	}}}
	if etcd != nil {
		own := probe.Check{Name: "serializable_read", Run: etcd.read(true)}
		live = append(live, own)
		serves = append(serves, probe.Check{Name: "data_corruption", Run: etcd.corrupt}, own,
			probe.Check{Name: "linearizable_read", Run: etcd.read(false)},
			probe.Check{Name: "non_learner", Run: etcd.learner})
	}
	probe.Handle(mux, "/livez", live)
	probe.Handle(mux, "/readyz", serves)
}

// etcdChecks are etcd's checks of a server. A server without a part of the coordination store
// answers with the state of the member to which it forwards calls.
type etcdChecks struct{ api *etcdAPI }

// services returns this server's own services, or nil if it forwards calls. The error says why
// there are none.
func (c *etcdChecks) services() (*etcdapi.Services, error) {
	if _, _, own := c.api.Own(pb.KV_ServiceDesc.ServiceName); !own {
		return nil, nil
	}
	if services := c.api.member.etcdServices(); services != nil {
		return services, nil
	}
	return nil, c.api.noCoordination()
}

// healthy is the check of /health.
func (c *etcdChecks) healthy(
	ctx context.Context, serializable bool, excluded map[string]bool,
) error {
	services, err := c.services()
	switch {
	case err != nil:
		return err
	case services == nil:
		return c.api.forwarder.Healthy(ctx, serializable, excluded)
	}
	return services.Healthy(ctx, serializable, excluded)
}

// read returns a check that reads, either from this server alone or with everything that was
// acknowledged before.
func (c *etcdChecks) read(serializable bool) func(context.Context) error {
	return func(ctx context.Context) error {
		services, err := c.services()
		switch {
		case err != nil:
		case services == nil:
			err = c.api.forwarder.Healthy(ctx, serializable, anyAlarm)
		default:
			err = services.Readable(ctx, serializable)
		}
		if err != nil {
			return errors.New(status.Convert(err).Message())
		}
		return nil
	}
}

// anyAlarm excludes all alarms.
var anyAlarm = map[string]bool{pb.AlarmType_NOSPACE.String(): true,
	pb.AlarmType_CORRUPT.String(): true}

// corrupt returns an error if the alarm CORRUPT is raised.
func (c *etcdChecks) corrupt(ctx context.Context) error {
	services, err := c.services()
	switch {
	case err != nil:
		return err
	case services != nil:
		return services.Corrupt()
	}
	return c.api.forwarder.Corrupt(ctx)
}

// learner returns an error if this member has no vote. It returns nil for a server that is no
// member.
func (c *etcdChecks) learner(context.Context) error {
	services, err := c.services()
	if services != nil && c.api.cluster.Load().Learner() {
		return errors.New("not supported for learner")
	}
	return err
}
