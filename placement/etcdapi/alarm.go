package etcdapi

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Alarm implements etcdserverpb.MaintenanceServer. An alarm that was raised by a request is ended
// by a request. A member that raises an alarm because it has no disk space ends the alarm itself
// when it has space again. A request ends such an alarm as well, and the member raises it again if
// nothing has changed.
func (s *maintenanceServer) Alarm(
	ctx context.Context, r *pb.AlarmRequest,
) (*pb.AlarmResponse, error) {
	check := s.Administer
	if r.Action == pb.AlarmRequest_GET {
		check = s.IdentifiedNow
	}
	if _, err := check(ctx); err != nil {
		return nil, err
	}
	var alarms []*pb.AlarmMember
	switch r.Action {
	case pb.AlarmRequest_GET:
		for _, alarm := range s.Store.Alarms() {
			if a := fromAlarm(alarm); r.Alarm == pb.AlarmType_NONE || r.Alarm == a.Alarm {
				alarms = append(alarms, a)
			}
		}
	case pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE:
		if r.Alarm == pb.AlarmType_NONE {
			break
		}
		change, alarm := store.RaiseAlarm, &storepb.Alarm{Member: r.MemberID,
			Type: storepb.Alarm_Type(r.Alarm)}
		if r.Action == pb.AlarmRequest_DEACTIVATE {
			change = store.EndAlarm
		}
		result, err := s.Execute(ctx, change(alarm))
		if err != nil {
			return nil, err
		}
		if result.Alarm != nil {
			alarms = append(alarms, fromAlarm(result.Alarm))
		}
	default:
		return nil, status.Errorf(codes.InvalidArgument, "etcdserver: alarms know no action %d",
			r.Action)
	}
	return &pb.AlarmResponse{Header: s.Header(0), Alarms: alarms}, nil
}

func fromAlarm(a *storepb.Alarm) *pb.AlarmMember {
	return &pb.AlarmMember{MemberID: a.Member, Alarm: pb.AlarmType(a.Type)}
}

// alarmTexts lists the alarms in the form of the errors of Status.
func (b *shared) alarmTexts() (texts []string) {
	for _, alarm := range b.Store.Alarms() {
		a := fromAlarm(alarm)
		texts = append(texts, fmt.Sprintf("memberID:%d alarm:%s", a.MemberID, a.Alarm))
	}
	return texts
}
