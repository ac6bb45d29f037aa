package command

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxMembers bounds the members in a record, and maxRemoved the removed members that it
	// remembers.
	maxMembers = 16
	maxRemoved = 64
)

var memberRoles = map[storepb.MemberRole]group.Role{
	storepb.MemberRole_VOTER:    group.Voter,
	storepb.MemberRole_LEARNER:  group.Learner,
	storepb.MemberRole_INCOMING: group.Incoming,
	storepb.MemberRole_OUTGOING: group.Outgoing,
}

// ConfigurationOf returns the Raft configuration for a record of members, in a store that was
// founded with members of version 0.
func ConfigurationOf(m *storepb.Members) group.Configuration {
	c := group.Configuration{Changed: m.GetVersion() > 0}
	for _, x := range m.GetMembers() {
		c.Members = append(c.Members, group.Member{Replica: keys.ReplicaID(x.Replica), Host: x.Replica,
			Role: memberRoles[x.Role]})
	}
	return c
}

func DecodeMembers(value []byte) (*storepb.Members, error) {
	m := &storepb.Members{}
	err := proto.Unmarshal(value, m)
	if err == nil {
		err = soundMembers(m)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of the core's members is malformed: %w", err)
	}
	return m, nil
}

// soundMembers returns an error for an invalid record of members.
func soundMembers(m *storepb.Members) error {
	if m.GetVersion() == 0 {
		return fmt.Errorf("members without a version")
	}
	servers := map[uint64]bool{}
	for _, x := range m.Members {
		switch {
		case x.GetServer() == 0 || x.Address == "":
			return fmt.Errorf("member %d has no server id or no address", x.GetReplica())
		case servers[x.Server]:
			return fmt.Errorf("server %016x is listed twice", x.Server)
		case memberRoles[x.Role] == 0:
			return fmt.Errorf("member %d has role %d, which this version does not know", x.Replica,
				x.Role)
		case x.Replica >= m.NextReplica:
			return fmt.Errorf("member %d has an id that is to be given out yet: %d is next", x.Replica,
				m.NextReplica)
		}
		servers[x.Server] = true
	}
	c := ConfigurationOf(m)
	return c.Validate()
}

// ValidateMembers makes the checks that need no state.
func ValidateMembers(m *storepb.Members) error {
	if err := soundMembers(m); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(m.Members) > maxMembers || len(m.Removed) > maxRemoved {
		return fmt.Errorf("%w: %d members, and %d removed ones; at most %d and %d", ErrTooLarge,
			len(m.Members), len(m.Removed), maxMembers, maxRemoved)
	}
	return nil
}

// StepOfMembers returns an error unless next follows from now by one step. change is set if the
// step changes the configuration.
func StepOfMembers(now, next *storepb.Members) (change bool, err error) {
	if err := soundMembers(next); err != nil {
		return false, err
	}
	least := uint64(1)
	for _, x := range now.GetMembers() {
		least = max(least, x.Replica+1)
	}
	if next.NextReplica < max(least, now.GetNextReplica()) {
		return false, fmt.Errorf("%d would be the next replica id, which may have been given out",
			next.NextReplica)
	}
	for _, x := range next.Members {
		was := memberOf(now, x.Replica)
		switch {
		case was == nil && x.Replica < max(least, now.GetNextReplica()):
			return false, fmt.Errorf("replica id %d was given out before", x.Replica)
		case was != nil && was.Server != x.Server:
			return false, fmt.Errorf("member %d would become another server", x.Replica)
		}
	}
	from, to := ConfigurationOf(now), ConfigurationOf(next)
	if from.Equal(&to) {
		return false, nil
	}
	return true, from.CanBecome(&to)
}

func memberOf(m *storepb.Members, replica uint64) *storepb.Member {
	at, found := slices.BinarySearchFunc(m.GetMembers(), replica,
		func(x *storepb.Member, id uint64) int { return cmp.Compare(x.Replica, id) })
	if !found {
		return nil
	}
	return m.Members[at]
}
