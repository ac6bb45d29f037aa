package forward

import (
	"context"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// healthMethod is the method that asks a member for its health.
var healthMethod = methodOf(grpc_health_v1.Health_ServiceDesc.ServiceName, "Check", 0)

// healthWithin limits the wait for a member's answer about its health. After that the next member
// is asked.
const healthWithin = 2 * time.Second

// Healthy returns an error if no member of the core answers calls, or if an alarm is raised that is
// not excluded. Unless the member's own answer is enough (serializable), the member must know
// everything that was acknowledged before.
func (f *Forwarder) Healthy(
	ctx context.Context, serializable bool, excluded map[string]bool,
) error {
	l, leave, err := f.enter(f.config.Party(ctx))
	if err != nil {
		return err
	}
	defer leave()
	out, last := f.config.Outgoing(ctx), lastStart(ctx)
	request := &grpc_health_v1.HealthCheckRequest{Service: coordpb.HealthOf(serializable, excluded)}
	var why error // the reason that a member gives
	failed := f.rounds(ctx, healthMethod, "", last, func(address string, all []string) bool {
		began := time.Now()
		limited, cancel := context.WithTimeout(out, healthWithin)
		defer cancel()
		_, of, err := f.ask(limited, l, address, healthMethod, request, last)
		if code := status.Code(err); of == answered &&
			(code == codes.NotFound || code == codes.Unimplemented) {
			of, err = f.readable(limited, l, address, serializable, last)
		}
		if of == notDone {
			return false
		}
		why = err
		f.members.ended(address, all, healthMethod, began, err)
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			return false
		}
		return true
	})
	switch {
	case why != nil:
		return errors.New(strings.TrimPrefix(status.Convert(why).Message(), "etcdserver: "))
	case failed != nil:
		return failed
	}
	return nil
}

// Corrupt returns an error if a member of the core reports that the alarm CORRUPT is raised.
func (f *Forwarder) Corrupt(ctx context.Context) error {
	why, alarm := f.Healthy(ctx, true, map[string]bool{pb.AlarmType_NOSPACE.String(): true}),
		pb.AlarmType_CORRUPT.String()
	if why != nil && why.Error() == "ALARM "+alarm {
		return errors.New("alarm activated: " + alarm)
	}
	return nil
}

// readable asks a member of an earlier version whether a client can read there. While
// authentication is enabled, the member refuses a client without a user. But it does so only after
// it has confirmed that it knows everything, which is enough.
func (f *Forwarder) readable(ctx context.Context, l *lane, address string, serializable bool,
	last time.Time) (fate, error) {
	request := &pb.RangeRequest{}
	if !serializable {
		request = &pb.RangeRequest{Key: []byte{0}, KeysOnly: true, Limit: 1}
	}
	_, of, err := f.ask(ctx, l, address, rangeMethod, request, last)
	if code := status.Code(err); of == answered &&
		(code == codes.InvalidArgument || code == codes.PermissionDenied) {
		err = nil
	}
	return of, err
}
