package roster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// ByServer returns the member of a server, or nil if there is none.
func ByServer(m *storepb.Members, server uint64) *storepb.Member {
	return Where(m, func(x *storepb.Member) bool { return server != 0 && x.Server == server })
}

// ByReplica returns the member with an id, or nil if there is none.
func ByReplica(m *storepb.Members, id uint64) *storepb.Member {
	return Where(m, func(x *storepb.Member) bool { return id != 0 && x.Replica == id })
}

// Where returns the first member for which a condition holds, or nil if there is none.
func Where(m *storepb.Members, is func(*storepb.Member) bool) *storepb.Member {
	if i := slices.IndexFunc(m.GetMembers(), is); i >= 0 {
		return m.Members[i]
	}
	return nil
}

// Voters counts the members that will have a vote when the present change is done.
func Voters(m *storepb.Members) (n int) {
	c := store.ConfigurationOf(m)
	for _, x := range c.Members {
		if x.Role == group.Voter || x.Role == group.Incoming {
			n++
		}
	}
	return n
}

// Find finds a member by its address or its id. If two members have one address, it returns the
// member that is not the newcomer.
func Find(members *storepb.Members, name string, newcomer uint64) *storepb.Member {
	if m := Where(members, func(x *storepb.Member) bool {
		return x.Address == name && x.Server != newcomer
	}); m != nil {
		return m
	}
	id, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return nil
	}
	return ByReplica(members, id)
}

// List formats the members with address and id.
func List(members *storepb.Members) string {
	var list []string
	for _, m := range members.GetMembers() {
		list = append(list, fmt.Sprintf("%s (%d)", m.Address, m.Replica))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// IsLearner reports whether a member has no vote.
func IsLearner(m *storepb.Member) bool { return m.GetRole() == storepb.MemberRole_LEARNER }

// JoinOr joins words: "a, b or c".
func JoinOr(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	}
	return strings.Join(list, "")
}
