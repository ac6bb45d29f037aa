package closing

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Replica is a group's replica on this host. Its methods are called with the lock of a Following
// held, and must not call that Following.
type Replica interface {
	// Follows reports whether this replica is still in the given term, led by a host, and has voted
	// in no later term. Then, as far as this replica is concerned, no other replica has led the
	// group since.
	Follows(host, term uint64) bool
	// SleepsIn gives the replica the membership to ask for its closed timestamp; nil: the group is
	// in no set any more.
	SleepsIn(*Membership)
	// NoteClosed gives a timestamp that is closed for a replica that has applied its log up to an
	// index.
	NoteClosed(closed hlc.Timestamp, index uint64)
}

// Following holds the sets of other hosts with groups that follow them here, asleep. It is safe for
// concurrent use.
type Following struct {
	// find returns the replica of a group on this host, or nil. It is called with the lock held.
	find func(keys.PartitionID) Replica

	mu    sync.Mutex
	hosts map[uint64]*leader
	// of maps a group to its membership; a group is in one set at most.
	of map[keys.PartitionID]*Membership
}

// leader is another host that has sets.
type leader struct {
	incarnation uint64
	round       uint64
	sets        map[uint64]*copied
	// answers are the answers of this host's next ping to the leader.
	answers []*peerpb.SleepingAffirmed
}

// copied is this host's copy of a leader's set.
type copied struct {
	host    uint64
	version uint64
	closed  atomic.Int64
	members map[keys.PartitionID]*Membership
	// dropped holds the groups of the leader's set that are not in this copy, because they do not
	// follow the leader.
	dropped map[keys.PartitionID]struct{}
}

// Membership is the place of a group in a set.
type Membership struct {
	set     *copied
	replica Replica
	term    uint64
	index   uint64
}

// Closed returns the timestamp that is closed for a replica that has applied its log up to index.
func (m *Membership) Closed() (closed hlc.Timestamp, index uint64) {
	return hlc.Timestamp{Wall: m.set.closed.Load()}, m.index
}

// NewFollowing returns a Following without groups.
func NewFollowing(find func(keys.PartitionID) Replica) *Following {
	return &Following{find: find, hosts: make(map[uint64]*leader),
		of: make(map[keys.PartitionID]*Membership)}
}

// Heard processes the sets in a host's ping of a round. mostClosed is the highest wall time that is
// accepted as closed: a higher one comes from a wrong clock.
func (f *Following) Heard(host, incarnation, round uint64, told []*peerpb.SleepingSet,
	mostClosed int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[host]
	if h == nil {
		if len(told) == 0 {
			return
		}
		h = &leader{incarnation: incarnation, sets: make(map[uint64]*copied)}
		f.hosts[host] = h
	}
	switch {
	case h.incarnation != incarnation:
		f.forget(h)
		*h = leader{incarnation: incarnation, sets: make(map[uint64]*copied)}
	case round <= h.round:
		return // a late ping
	}
	h.round, h.answers = round, h.answers[:0]
	still := make(map[uint64]struct{}, len(told))
	for _, m := range told {
		still[m.GetId()] = struct{}{}
		if m.GetTo() != 0 {
			h.answers = append(h.answers, f.take(host, h, m, mostClosed))
		}
	}
	for id, c := range h.sets {
		if _, there := still[id]; !there {
			f.empty(c)
			delete(h.sets, id)
		}
	}
	if len(h.sets) == 0 && len(told) == 0 {
		delete(f.hosts, host)
	}
}

// take processes the changes of one set, and returns the answer.
func (f *Following) take(host uint64, h *leader, m *peerpb.SleepingSet, mostClosed int64,
) *peerpb.SleepingAffirmed {
	c := h.sets[m.GetId()]
	if c == nil || m.GetFrom() == 0 {
		if c != nil {
			f.empty(c)
		}
		c = &copied{host: host, members: make(map[keys.PartitionID]*Membership),
			dropped: make(map[keys.PartitionID]struct{})}
		h.sets[m.GetId()] = c
	}
	a := &peerpb.SleepingAffirmed{Id: m.GetId()}
	if m.GetFrom() > c.version || m.GetTo() < c.version || len(m.GetAdded())%3 != 0 {
		a.Version = c.version // changes between the two versions are missing
		return a
	}
	for _, group := range m.GetRemoved() {
		id := keys.PartitionID(group)
		delete(c.dropped, id)
		if x := c.members[id]; x != nil {
			f.leave(id, x)
		}
	}
	for added := m.GetAdded(); len(added) > 0; added = added[3:] {
		f.join(c, keys.PartitionID(added[0]), added[1], added[2])
	}
	c.version = m.GetTo()
	// INVARIANT: the copy has the version to which this closed timestamp belongs.
	if closed := int64(m.GetClosed()); closed > c.closed.Load() && closed <= mostClosed {
		c.closed.Store(closed)
	}
	a.Version, a.Complete = c.version, true
	return a
}

// join adds a group to a set, if the group follows the leader.
func (f *Following) join(c *copied, id keys.PartitionID, term, index uint64) {
	r := f.find(id)
	if r == nil || !r.Follows(c.host, term) {
		// The group may still be in the set of its former leader.
		if x := c.members[id]; x != nil {
			f.leave(id, x)
		}
		c.dropped[id] = struct{}{}
		return
	}
	if x := f.of[id]; x != nil {
		f.leave(id, x)
		x.set.dropped[id] = struct{}{}
	}
	delete(c.dropped, id)
	x := &Membership{set: c, replica: r, term: term, index: index}
	c.members[id], f.of[id] = x, x
	r.SleepsIn(x)
	if invariants.Enabled {
		_, dropped := c.dropped[id]
		invariants.Check(!dropped, "group %s is in a set of host %d, and dropped from it", id, c.host)
	}
}

// leave takes a group out of its set. What was closed for it stays closed.
func (f *Following) leave(id keys.PartitionID, x *Membership) {
	if invariants.Enabled {
		invariants.Check(f.of[id] == x && x.set.members[id] == x,
			"group %s leaves a set of host %d that it is not in", id, x.set.host)
	}
	delete(x.set.members, id)
	delete(f.of, id)
	if closed, index := x.Closed(); closed.Wall > 0 {
		x.replica.NoteClosed(closed, index)
	}
	x.replica.SleepsIn(nil)
}

// empty removes all groups from a set.
func (f *Following) empty(c *copied) {
	for id, x := range c.members {
		f.leave(id, x)
	}
}

// forget removes all groups from the sets of a leader.
func (f *Following) forget(h *leader) {
	for _, c := range h.sets {
		f.empty(c)
	}
}

// Changed must be called when the term, the leader or the role of a group here has changed, before
// any message with the change leaves; gone: the group has no replica here any more. A group that no
// longer follows the leader of its set is removed from the set, and the next answer tells the
// leader.
func (f *Following) Changed(id keys.PartitionID, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.of[id]
	if x == nil || (!gone && x.replica.Follows(x.set.host, x.term)) {
		return
	}
	f.leave(id, x)
	x.set.dropped[id] = struct{}{}
}

// Owes reports whether the next ping to a host must carry an answer.
func (f *Following) Owes(host uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[host]
	return h != nil && len(h.sets)+len(h.answers) > 0
}

// Answer returns the answer to a host's last ping, or nil.
//
// INVARIANT: groups that do not follow at this moment are dropped from the set first: an answer
// affirms the moment at which it is made.
func (f *Following) Answer(host uint64) *peerpb.SleepingAnswer {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[host]
	if h == nil || len(h.answers) == 0 {
		return nil
	}
	a := &peerpb.SleepingAnswer{Incarnation: h.incarnation, Round: h.round, Sets: h.answers}
	h.answers = nil
	for _, told := range a.Sets {
		c := h.sets[told.Id]
		if c == nil || !told.Complete {
			continue
		}
		told.Dropped = told.Dropped[:0]
		for group := range c.dropped {
			told.Dropped = append(told.Dropped, uint64(group))
		}
	}
	return a
}

// Groups returns how many groups are in the sets of other hosts.
func (f *Following) Groups() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.of)
}
