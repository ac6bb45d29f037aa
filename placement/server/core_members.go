package server

import (
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// StoredMembers makes of the members of a founding what the store has of members.
func StoredMembers(founding []*clusterpb.CoreMember) *storepb.Members {
	m := &storepb.Members{NextReplica: 1}
	for _, x := range founding {
		m.Members = append(m.Members, &storepb.Member{Replica: x.Replica, Server: x.Server,
			Address: x.Address, Role: storepb.MemberRole(x.Role)})
		m.NextReplica = max(m.NextReplica, x.Replica+1)
	}
	slices.SortFunc(m.Members, func(a, b *storepb.Member) int {
		return int(a.Replica) - int(b.Replica)
	})
	return m
}

// coreMembers is a record of members as others are told of it.
func coreMembers(m *storepb.Members) *clusterpb.CoreMembers {
	return &clusterpb.CoreMembers{Version: m.GetVersion(), Members: publicMembers(m.GetMembers())}
}

func publicMembers(members []*storepb.Member) []*clusterpb.CoreMember {
	list := make([]*clusterpb.CoreMember, len(members))
	for i, x := range members {
		list[i] = &clusterpb.CoreMember{Address: x.Address, Replica: x.Replica, Server: x.Server,
			Role: clusterpb.ReplicaRole(x.Role)}
	}
	return list
}

// current are the members as of what is applied here; those that the Server was started with while
// nothing is.
func (s *Server) current() *clusterpb.CoreMembers {
	if m := s.store.Members(); len(m.GetMembers()) > 0 {
		return coreMembers(m)
	}
	return &clusterpb.CoreMembers{Members: s.config.Members}
}

// Members returns the members of the core.
func (s *Server) Members() []*clusterpb.CoreMember { return s.current().Members }

// CoreMembers returns the members of the core, and as of which change.
func (s *Server) CoreMembers() *clusterpb.CoreMembers { return s.current() }

// joinOr lists words: "a, b or c".
func joinOr(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	}
	return strings.Join(list, "")
}
