package closing

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

const (
	// rounds is how many rounds an affirmation stays valid.
	rounds = 64
	// mostMembers bounds the groups of a set, and so the size of a set that is sent whole.
	mostMembers = 8192
	// mostAnew is how many sets one ping sends whole.
	mostAnew = 4
	// logLength is how many changes a set remembers for hosts that lag. A host that lags more is
	// sent the whole set.
	logLength = 4096
)

// Leading holds the sets of groups that sleep under leaders on this host. It is safe for concurrent
// use.
type Leading struct {
	mu      sync.Mutex
	classes map[string][]*set
	sets    map[uint64]*set
	last    uint64 // the last id given to a set
	round   uint64
	// walls holds the physical clock at the beginning of each of the last rounds; 0: the clock was
	// not trusted.
	walls [rounds]int64
}

// Class is what all groups of a set have in common.
type Class struct {
	// Voters are the hosts of the voters, this one included. Others are the hosts of the other
	// replicas.
	Voters, Others []uint64
	// Lag is how far behind the clock timestamps are closed.
	Lag time.Duration
}

// key is a map key for the class. It sorts the hosts.
func (c *Class) key() string {
	b := binary.AppendUvarint(nil, uint64(c.Lag))
	for _, hosts := range [...][]uint64{c.Voters, c.Others} {
		slices.Sort(hosts)
		b = binary.AppendUvarint(b, uint64(len(hosts)))
		for _, h := range hosts {
			b = binary.AppendUvarint(b, h)
		}
	}
	return string(b)
}

// set is a set of groups.
type set struct {
	id    uint64
	key   string
	class Class
	// version is the version of the present members. changes holds the changes that made the last
	// versions, the newest last.
	version uint64
	changes []change
	members map[keys.PartitionID]*Ticket
	// closed is the highest wall time that was closed for the set.
	closed atomic.Int64
	peers  map[uint64]*listener
}

// change is the step to the next version of a set: a group was added, or, if ticket is nil,
// removed.
type change struct {
	group  keys.PartitionID
	ticket *Ticket
}

// listener is a host that has replicas of a set's groups.
type listener struct {
	// acknowledged is the version of the set that the host has; 0: none.
	acknowledged uint64
	// answered is the round of the host's latest answer, and affirmed the round of its latest
	// complete answer.
	answered, affirmed uint64
}

// Ticket is a group's place in a set.
type Ticket struct {
	leading *Leading
	set     *set
	group   keys.PartitionID
	term    uint64
	index   uint64
	version uint64
	// gone is set when the group has been removed from the set; left is the timestamp that was
	// closed for it then.
	gone atomic.Bool
	left atomic.Int64
}

// NewLeading returns a Leading without groups.
func NewLeading() *Leading {
	return &Leading{classes: make(map[string][]*set), sets: make(map[uint64]*set)}
}

// Add adds a group that this host leads in a term, under a lease that stands. All of its log up to
// index is applied here, and nothing is under way. closable is the wall time that the group could
// close by itself at this moment: this host's clock less the lag. Add returns nil if the group
// cannot join now, because the set has closed more than that.
func (l *Leading) Add(group keys.PartitionID, term, index uint64, c Class, closable int64) *Ticket {
	key := c.key()
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.classes[key]
	i := slices.IndexFunc(of, func(s *set) bool { return len(s.members) < mostMembers })
	if i < 0 {
		l.last++
		s := &set{id: l.last, key: key, class: c, version: 1,
			members: make(map[keys.PartitionID]*Ticket), peers: make(map[uint64]*listener)}
		i, of = len(of), append(of, s)
		l.classes[key], l.sets[s.id] = of, s
	}
	s := of[i]
	// INVARIANT: every round that may count for the group began before its lease was seen to stand,
	// because closable was read from the clock before that.
	if max(s.closed.Load(), l.walls[l.round%rounds]-int64(c.Lag)) > closable {
		return nil
	}
	t := &Ticket{leading: l, set: s, group: group, term: term, index: index}
	s.members[group] = t
	s.change(change{group, t})
	t.version = s.version
	return t
}

// change applies a change, which makes the next version.
func (s *set) change(c change) {
	s.version++
	if s.changes = append(s.changes, c); len(s.changes) >= 2*logLength {
		s.changes = slices.Delete(s.changes, 0, len(s.changes)-logLength)
	}
}

// Closed returns the wall time that is closed for the group: what its set had closed up to the
// group's removal.
func (t *Ticket) Closed() int64 {
	closed := t.set.closed.Load()
	if t.gone.Load() { // checked again: what the set closes later is not closed for the group
		return t.left.Load()
	}
	return closed
}

// Gone reports whether the group has been removed from its set.
func (t *Ticket) Gone() bool { return t.gone.Load() }

// Remove removes the group from its set, unless it was removed before, and returns the wall time
// that is closed for it.
func (t *Ticket) Remove() (closed int64) {
	t.leading.mu.Lock()
	defer t.leading.mu.Unlock()
	t.leading.remove(t)
	return t.left.Load()
}

func (l *Leading) remove(t *Ticket) {
	s := t.set
	if t.gone.Load() {
		return
	}
	if invariants.Enabled {
		invariants.Check(s.members[t.group] == t, "group %s leaves a set that it is not in", t.group)
	}
	t.left.Store(s.closed.Load())
	t.gone.Store(true)
	delete(s.members, t.group)
	s.change(change{group: t.group})
}

// Begin begins a round, and closes what has been affirmed. wall is the physical clock, and trusted
// says whether it may be relied on. The pings of the round are made after Begin.
func (l *Leading) Begin(wall int64, trusted bool) (round uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	if !trusted {
		wall = 0
	}
	l.walls[l.round%rounds] = wall
	for _, s := range l.sets {
		if len(s.members) == 0 {
			l.forget(s)
			continue
		}
		if at := l.wall(s.affirmed(l.round)) - int64(s.class.Lag); at > s.closed.Load() {
			s.closed.Store(at)
		}
	}
	return l.round
}

// forget drops an empty set. Groups that sleep later get a new set.
func (l *Leading) forget(s *set) {
	delete(l.sets, s.id)
	of := slices.DeleteFunc(l.classes[s.key], func(o *set) bool { return o == s })
	if l.classes[s.key] = of; len(of) == 0 {
		delete(l.classes, s.key)
	}
}

// wall returns the physical clock at the beginning of a round; 0 if the round is too old, or the
// clock was not trusted.
func (l *Leading) wall(round uint64) int64 {
	if round == 0 || l.round-round >= rounds {
		return 0
	}
	return l.walls[round%rounds]
}

// affirmed returns the latest round that a majority of the set's voters has affirmed; 0: none. This
// host itself affirms the round now.
func (s *set) affirmed(now uint64) uint64 {
	latest := []uint64{now}
	for _, host := range s.class.Voters {
		if p := s.peers[host]; p != nil {
			latest = append(latest, p.affirmed)
		}
	}
	n := len(s.class.Voters)
	if len(latest) < n/2+1 {
		return 0
	}
	slices.SortFunc(latest, func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
	return latest[n/2]
}

// Ping returns what this round's ping tells a host about the sets.
func (l *Leading) Ping(host uint64) (told []*peerpb.SleepingSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	anew := 0
	for _, s := range l.sets {
		if s.concerns(host) {
			told = append(told, s.tell(host, &anew))
		}
	}
	return told
}

// Tells reports whether a host has replicas of any set's groups.
func (l *Leading) Tells(host uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sets {
		if s.concerns(host) {
			return true
		}
	}
	return false
}

// concerns reports whether a host has replicas of the set's groups.
func (s *set) concerns(host uint64) bool {
	return slices.Contains(s.class.Voters, host) || slices.Contains(s.class.Others, host)
}

// tell returns what a host is told about a set. anew counts the sets that are sent whole.
func (s *set) tell(host uint64, anew *int) *peerpb.SleepingSet {
	p := s.peers[host]
	if p == nil {
		p = &listener{}
		s.peers[host] = p
	}
	m := &peerpb.SleepingSet{Id: s.id}
	if behind := s.version - p.acknowledged; p.acknowledged == 0 || behind > uint64(len(s.changes)) {
		if *anew++; *anew > mostAnew {
			return m
		}
		for _, t := range s.members {
			m.Added = append(m.Added, uint64(t.group), t.term, t.index)
		}
	} else {
		m.From = p.acknowledged
		for _, c := range s.changes[uint64(len(s.changes))-behind:] {
			switch {
			case c.ticket == nil:
				m.Removed = append(m.Removed, uint64(c.group))
			case !c.ticket.Gone():
				m.Added = append(m.Added, uint64(c.group), c.ticket.term, c.ticket.index)
			}
		}
	}
	m.To, m.Closed = s.version, uint64(s.closed.Load())
	return m
}

// Answered takes a host's answer to the ping of a round of this process.
func (l *Leading) Answered(host uint64, a *peerpb.SleepingAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.GetRound() > l.round {
		return // an answer to a former process
	}
	for _, told := range a.GetSets() {
		s := l.sets[told.GetId()]
		if s == nil {
			continue
		}
		p := s.peers[host]
		if p == nil || a.GetRound() <= p.answered || told.GetVersion() > s.version {
			continue
		}
		p.answered, p.acknowledged = a.GetRound(), told.GetVersion()
		// INVARIANT: groups that do not follow are removed from the set before the answer counts.
		for _, group := range told.GetDropped() {
			if t := s.members[keys.PartitionID(group)]; t != nil && t.version <= told.GetVersion() {
				l.remove(t)
			}
		}
		if told.GetComplete() {
			p.affirmed = a.GetRound()
		}
	}
}

// Forget is called when a host has restarted: the new process knows no set.
func (l *Leading) Forget(host uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sets {
		delete(s.peers, host)
	}
}

// Groups returns how many groups sleep in sets, and the number of sets.
func (l *Leading) Groups() (groups, sets int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sets {
		groups += len(s.members)
	}
	return groups, len(l.sets)
}
