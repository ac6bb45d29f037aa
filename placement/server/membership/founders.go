package membership

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

// joinOr lists words: "a, b or c".
func joinOr(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	}
	return strings.Join(list, "")
}
