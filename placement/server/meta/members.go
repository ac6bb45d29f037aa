package meta

import (
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// coreMembers converts a record of members to the public form.
func coreMembers(m *storepb.Members) *clusterpb.CoreMembers {
	return &clusterpb.CoreMembers{Version: m.GetVersion(), Members: PublicMembers(m.GetMembers())}
}

// PublicMembers converts members to the form that is sent to others.
func PublicMembers(members []*storepb.Member) []*clusterpb.CoreMember {
	list := make([]*clusterpb.CoreMember, len(members))
	for i, x := range members {
		list[i] = &clusterpb.CoreMember{Address: x.Address, Replica: x.Replica, Server: x.Server,
			Role: clusterpb.ReplicaRole(x.Role)}
	}
	return list
}

// CoreMembers returns the members of the core in the applied state of this member. Before the first
// record is applied, it returns the founders.
func (r *Records) CoreMembers() *clusterpb.CoreMembers {
	if m := r.store.Members(); len(m.GetMembers()) > 0 {
		return coreMembers(m)
	}
	return &clusterpb.CoreMembers{Members: r.founders}
}

// Members returns the members of CoreMembers.
func (r *Records) Members() []*clusterpb.CoreMember { return r.CoreMembers().Members }

// Address returns the address of a member. It is empty if there is no such member.
func (r *Records) Address(id keys.ReplicaID) string {
	for _, m := range r.Members() {
		if m.Replica == uint64(id) {
			return m.Address
		}
	}
	return ""
}

// LeaderAddress returns the address of the core's leader. It is empty if this member does not know
// the leader.
func (r *Records) LeaderAddress() string {
	l, _ := r.store.Leadership()
	return r.Address(l.Leader)
}
