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

// healthMethod is the method by which a member is asked for its health.
var healthMethod = methodOf(grpc_health_v1.Health_ServiceDesc.ServiceName, "Check", 0)

// healthWithin bounds the wait for a member's answer about its health, until the next one is asked.
const healthWithin = 2 * time.Second

// Healthy says why calls are not answered, if no member of the core answers them, or that an alarm
// is raised which is not among the excluded ones. Unless the answer may be that of the member alone
// (serializable), the member has to know everything that was acknowledged before.
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
	var why error // a member's words
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

// Corrupt says that the alarm CORRUPT is raised, if a member of the core says so.
func (f *Forwarder) Corrupt(ctx context.Context) error {
	why, alarm := f.Healthy(ctx, true, map[string]bool{pb.AlarmType_NOSPACE.String(): true}),
		pb.AlarmType_CORRUPT.String()
	if why != nil && why.Error() == "ALARM "+alarm {
		return errors.New("alarm activated: " + alarm)
	}
	return nil
}

// readable asks a member of an earlier version whether a client can read there. While
// authentication is enabled, the member refuses a client without a name, but only when the member
// knows everything, too.
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
