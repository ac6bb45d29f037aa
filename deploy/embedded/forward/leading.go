package forward

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ofLeader are the methods whose calls are for the member that leads: what no other member does,
// and the status, by which clients look for the leader among their endpoints.
var ofLeader = map[string]bool{
	pb.Maintenance_MoveLeader_FullMethodName: true,
	pb.Maintenance_Status_FullMethodName:     true,
}

// statusMethod is the method by which a member is asked whether it leads.
var statusMethod = methodOf(pb.Maintenance_ServiceDesc.ServiceName, "Status", 1)

// leadsWithin bounds the wait for a member's answer about who leads.
const leadsWithin = time.Second

// leading asks the members in turn for the address of the one that leads; "" if none says that it
// does, or the client may not ask.
func (f *Forwarder) leading(ctx context.Context, l *lane, last time.Time) string {
	for _, address := range f.members.order(f.config.Members(), f.config.Random) {
		if f.leads(ctx, l, address, last) {
			return address
		}
	}
	return ""
}

// leads asks a member whether it leads.
func (f *Forwarder) leads(ctx context.Context, l *lane, address string, last time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, leadsWithin)
	defer cancel()
	answer, _, err := f.ask(ctx, l, address, statusMethod, &pb.StatusRequest{}, last)
	if err != nil {
		return false
	}
	r, ok := answer.(*pb.StatusResponse)
	return ok && r.GetLeader() != 0 && r.GetLeader() == r.GetHeader().GetMemberId()
}
