package forward

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// statusMethod is the method that asks a member whether it leads.
var statusMethod = methodOf(pb.Maintenance_ServiceDesc.ServiceName, "Status", 1)

// leadsWithin bounds the wait for a member's answer about who leads.
const leadsWithin = time.Second

// leading asks the members in turn for the address of the leader. It returns "" if no member
// reports that it leads, or if the client has no permission to ask.
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
