package group

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Role is what a replica may do in its group.
type Role uint8

// The roles. The last three are those of a joint configuration, in which a majority of the old
// voters and one of the new have to agree (Ongaro's thesis, section 4.3).
const (
	// Voter votes. In a joint configuration it is a voter of both configurations.
	Voter Role = 1 + iota
	// Learner receives all entries, and does not vote.
	Learner
	// Incoming is a voter of the new configuration only.
	Incoming
	// Outgoing is a voter of the old configuration only, and leaves the group with it.
	Outgoing
	// Demoted is a voter of the old configuration only, and becomes a learner.
	Demoted
)

// String names the role as it is shown to people.
func (r Role) String() string {
	names := [...]string{"none", "voter", "learner", "incoming voter", "outgoing voter",
		"demoted voter"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("role %d", r)
}

func (r Role) votesOld() bool { return r == Voter || r == Outgoing || r == Demoted }
func (r Role) votesNew() bool { return r == Voter || r == Incoming }

// Member is a replica of a group.
type Member struct {
	Replica keys.ReplicaID
	// Host is where it is.
	Host uint64
	Role Role
}

// Configuration lists the replicas of a group. The zero value belongs to a replica that knows none
// yet, and is filled by a snapshot. A Configuration that was passed on is not changed any more.
type Configuration struct {
	// Members are sorted by replica id.
	Members []Member
	// Changed is set if this is not the configuration that the group was founded with, or the
	// group's first entries do not make its state.
	Changed bool
}

// Founded is the configuration of a new group: all replicas are voters.
func Founded(hosts map[keys.ReplicaID]uint64) Configuration {
	var c Configuration
	for id, host := range hosts {
		c.Members = append(c.Members, Member{Replica: id, Host: host, Role: Voter})
	}
	c.sort()
	return c
}

func (c *Configuration) sort() {
	slices.SortFunc(c.Members, func(a, b Member) int {
		switch {
		case a.Replica < b.Replica:
			return -1
		case a.Replica > b.Replica:
			return 1
		}
		return 0
	})
}

// Empty reports whether this is the configuration of a replica that knows none yet.
func (c *Configuration) Empty() bool { return len(c.Members) == 0 }

// Role returns the role of a replica; 0 if the group has no such replica.
func (c *Configuration) Role(id keys.ReplicaID) Role {
	for i := range c.Members {
		if c.Members[i].Replica == id {
			return c.Members[i].Role
		}
	}
	return 0
}

// Joint reports whether two sets of voters have to agree.
func (c *Configuration) Joint() bool {
	return slices.ContainsFunc(c.Members, func(m Member) bool { return m.Role > Learner })
}

// Quorum reports whether the replicas for which is returns true are enough to decide: a majority of
// the voters, and in a joint configuration a majority of the old voters and one of the new.
// Learners do not count.
func (c *Configuration) Quorum(is func(keys.ReplicaID) bool) bool {
	voters, have := [2]int{}, [2]int{}
	for _, m := range c.Members {
		votes := [2]bool{m.Role.votesOld(), m.Role.votesNew()}
		if !votes[0] && !votes[1] {
			continue
		}
		yes := is(m.Replica)
		for i := range votes {
			if votes[i] {
				voters[i]++
				if yes {
					have[i]++
				}
			}
		}
	}
	return have[0] > voters[0]/2 && have[1] > voters[1]/2
}

// Electable reports whether a replica can lead, and still lead when a joint configuration ends.
func (c *Configuration) Electable(id keys.ReplicaID) bool { return c.Role(id).votesNew() }

// knows reports whether a replica may belong to the group: it is a member, or was added later than
// all members. Replica ids ascend and are not reused; a lower id that is not a member was removed.
func (c *Configuration) knows(id keys.ReplicaID) bool {
	n := len(c.Members)
	return n == 0 || id > c.Members[n-1].Replica || c.Role(id) != 0
}

// Left returns the configuration that follows when a joint configuration ends.
func (c *Configuration) Left() Configuration {
	next := Configuration{Changed: true}
	for _, m := range c.Members {
		switch m.Role {
		case Outgoing:
			continue
		case Incoming:
			m.Role = Voter
		case Demoted:
			m.Role = Learner
		}
		next.Members = append(next.Members, m)
	}
	return next
}

// Validate returns an error that says what is wrong with a configuration.
func (c *Configuration) Validate() error {
	old, incoming := 0, 0
	hosts := make(map[uint64]keys.ReplicaID, len(c.Members))
	for i, m := range c.Members {
		switch {
		case m.Replica == 0 || m.Host == 0:
			return fmt.Errorf("replica %s on host %d: both ids are needed", m.Replica, m.Host)
		case m.Role < Voter || m.Role > Demoted:
			return fmt.Errorf("replica %s is to be a %s", m.Replica, m.Role)
		case i > 0 && m.Replica <= c.Members[i-1].Replica:
			return fmt.Errorf("replica %s is listed twice, or out of order", m.Replica)
		case hosts[m.Host] != 0:
			return fmt.Errorf("replicas %s and %s are both on host %d", hosts[m.Host], m.Replica, m.Host)
		}
		hosts[m.Host] = m.Replica
		if m.Role.votesOld() {
			old++
		}
		if m.Role.votesNew() {
			incoming++
		}
	}
	if old == 0 || incoming == 0 {
		return fmt.Errorf("%d voters decide, and %d afterwards: at least one is needed", old, incoming)
	}
	return nil
}

// Equal says whether two configurations have the same members, in the same roles.
func (c *Configuration) Equal(d *Configuration) bool { return slices.Equal(c.Members, d.Members) }

// String is for logs: "1:voter@3 2:voter@4 5:learner@6".
func (c *Configuration) String() string {
	parts := make([]string, len(c.Members))
	for i, m := range c.Members {
		parts[i] = fmt.Sprintf("%d:%s@%d", m.Replica, m.Role, m.Host)
	}
	return strings.Join(parts, " ")
}

// ConfState returns the configuration in Raft's form.
func (c *Configuration) ConfState() *raftpb.ConfState {
	s := &raftpb.ConfState{}
	joint := c.Joint()
	for _, m := range c.Members {
		id := uint64(m.Replica)
		if m.Role.votesNew() {
			s.Voters = append(s.Voters, id)
		}
		if joint && m.Role.votesOld() {
			s.VotersOutgoing = append(s.VotersOutgoing, id)
		}
		switch m.Role {
		case Learner:
			s.Learners = append(s.Learners, id)
		case Demoted:
			s.LearnersNext = append(s.LearnersNext, id)
		}
	}
	return s
}

// Agrees says whether Raft has this configuration.
func (c *Configuration) Agrees(s *raftpb.ConfState) bool {
	sorted := func(ids []uint64) []uint64 { return slices.Sorted(slices.Values(ids)) }
	mine := c.ConfState()
	return slices.Equal(mine.Voters, sorted(s.GetVoters())) &&
		slices.Equal(mine.VotersOutgoing, sorted(s.GetVotersOutgoing())) &&
		slices.Equal(mine.Learners, sorted(s.GetLearners())) &&
		slices.Equal(mine.LearnersNext, sorted(s.GetLearnersNext())) && !s.GetAutoLeave()
}

// Is reports whether encoded is this configuration in Raft's form.
func (c *Configuration) Is(encoded []byte) bool {
	s := &raftpb.ConfState{}
	return proto.Unmarshal(encoded, s) == nil && c.Agrees(s)
}

// CanBecome returns an error if next is not one step away.
func (c *Configuration) CanBecome(next *Configuration) error {
	_, err := c.stepTo(next)
	return err
}

// stepTo returns Raft's change that leads to another configuration. A step is one of:
//
//   - a learner is added, or one removed;
//   - the voters change, by a joint configuration. The joint configuration is left explicitly: the
//     entry by which Raft would leave it by itself cannot be told from a change that was refused;
//   - a joint configuration ends, and nothing else.
func (c *Configuration) stepTo(next *Configuration) (*raftpb.ConfChangeV2, error) {
	if err := next.Validate(); err != nil {
		return nil, err
	}
	if c.Joint() {
		left := c.Left()
		if !left.Equal(next) {
			return nil, fmt.Errorf("%s is joint, and becomes %s next, not %s", c, &left, next)
		}
		return &raftpb.ConfChangeV2{}, nil
	}
	change := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionAuto.Enum()}
	add := func(kind raftpb.ConfChangeType, id keys.ReplicaID) {
		replica := uint64(id)
		change.Changes = append(change.Changes, &raftpb.ConfChangeSingle{Type: kind.Enum(),
			NodeId: &replica})
	}
	var illegal []string
	for _, m := range next.Members {
		switch from := c.Role(m.Replica); {
		case from == 0 && len(c.Members) > 0 && !c.knows(m.Replica):
			illegal = append(illegal, fmt.Sprintf("replica %s was removed before", m.Replica))
		case from == 0 && m.Role == Learner:
			add(raftpb.ConfChangeAddLearnerNode, m.Replica)
		case from == Learner && m.Role == Incoming:
			add(raftpb.ConfChangeAddNode, m.Replica)
		case from == Voter && m.Role == Outgoing:
			add(raftpb.ConfChangeRemoveNode, m.Replica)
		case from == Voter && m.Role == Demoted:
			add(raftpb.ConfChangeAddLearnerNode, m.Replica)
		case from != m.Role:
			illegal = append(illegal, fmt.Sprintf("replica %s is no %s yet that could become a %s",
				m.Replica, map[Role]Role{Voter: Incoming, Incoming: Learner, Outgoing: Voter,
					Demoted: Voter, Learner: Demoted}[m.Role], m.Role))
		}
	}
	for _, m := range c.Members {
		switch to := next.Role(m.Replica); {
		case to == 0 && m.Role == Learner:
			add(raftpb.ConfChangeRemoveNode, m.Replica)
		case to == 0:
			illegal = append(illegal, fmt.Sprintf("replica %s is a %s, which leaves by a joint "+
				"configuration", m.Replica, m.Role))
		}
	}
	switch {
	case len(illegal) > 0:
		return nil, fmt.Errorf("%s is no step from %s: %s", next, c, strings.Join(illegal, "; "))
	case len(change.Changes) == 0:
		return nil, fmt.Errorf("%s changes nothing", next)
	case next.Joint():
		change.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	case len(change.Changes) > 1:
		return nil, fmt.Errorf("%s is no step from %s: one learner comes or goes at a time", next, c)
	}
	return change, nil
}

// configurationOf converts Raft's configuration. The result has no hosts.
func configurationOf(s *raftpb.ConfState) (c Configuration) {
	in := func(ids []uint64, id uint64) bool { return slices.Contains(ids, id) }
	add := func(role Role, id uint64) {
		c.Members = append(c.Members, Member{Replica: keys.ReplicaID(id), Host: id, Role: role})
	}
	joint := len(s.GetVotersOutgoing()) > 0
	for _, id := range s.GetVoters() {
		if joint && !in(s.GetVotersOutgoing(), id) {
			add(Incoming, id)
		} else {
			add(Voter, id)
		}
	}
	for _, id := range s.GetVotersOutgoing() {
		switch {
		case in(s.GetVoters(), id):
		case in(s.GetLearnersNext(), id):
			add(Demoted, id)
		default:
			add(Outgoing, id)
		}
	}
	for _, id := range s.GetLearners() {
		add(Learner, id)
	}
	c.sort()
	return c
}

// plausibleConfiguration decodes a configuration from a message; false if it is invalid.
func plausibleConfiguration(b []byte) (c Configuration, ok bool) {
	s := &raftpb.ConfState{}
	if proto.Unmarshal(b, s) != nil || s.GetAutoLeave() {
		return c, false
	}
	c = configurationOf(s)
	return c, c.Validate() == nil && c.Agrees(s)
}
