package closing

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

const (
	// rounds is how many rounds back an answer may be.
	rounds = 64
	// changesPerPing bounds the changes of a set in one ping.
	changesPerPing = 4096
	// leastLog is how many changes a set remembers at least for those that lag; more than a part of
	// its members are not worth it, as it is sent anew then.
	leastLog = 1024
)

// Leading is what this host closes for groups that sleep under its leaderships.
type Leading struct {
	mu    sync.Mutex
	sets  map[string]*set
	byID  map[uint64]*set
	last  uint64 // the last id
	round uint64
	// moments are those of the last rounds, by their numbers.
	moments [rounds]moment
}

// moment is when a round began.
type moment struct {
	round uint64
	// wall is the physical clock then; 0: it was not to be trusted.
	wall int64
}

// Class is what the groups of a set have in common.
type Class struct {
	// Voters are the hosts of the voters, this one included, and Others those of the replicas that do
	// not vote.
	Voters, Others []uint64
	// Lag is how far behind the clock timestamps are closed.
	Lag time.Duration
}

func (c *Class) key() string {
	slices.Sort(c.Voters)
	slices.Sort(c.Others)
	b := binary.AppendUvarint(nil, uint64(c.Lag))
	for _, hosts := range [...][]uint64{c.Voters, c.Others} {
		b = binary.AppendUvarint(b, uint64(len(hosts)))
		for _, h := range hosts {
			b = binary.AppendUvarint(b, h)
		}
	}
	return string(b)
}

// set is a set of groups.
type set struct {
	id      uint64
	key     string
	class   Class
	version uint64
	// closed is the highest wall time that was closed for it.
	closed  atomic.Int64
	members map[keys.PartitionID]*Ticket
	// changes are those from version logFrom on, one for each version.
	changes []change
	logFrom uint64
	peers   map[uint64]*listener
}

// change is what made a version of a set.
type change struct {
	group keys.PartitionID
	// ticket is nil if the group went.
	ticket *Ticket
}

// listener is a host that has replicas of a set's groups.
type listener struct {
	// acknowledged is the version that it has; 0: none.
	acknowledged uint64
	// scan is where the transfer of the whole set stands, if that is under way.
	affirmed uint64 // the latest round
}

// Ticket is a group's place in a set.
type Ticket struct {
	leading *Leading
	set     *set
	group   keys.PartitionID
	term    uint64
	index   uint64
	version uint64
	gone    bool
}

// NewLeading returns one without groups.
func NewLeading() *Leading {
	return &Leading{sets: make(map[string]*set), byID: make(map[uint64]*set)}
}

// Add adds a group that this host leads in a term, under a lease that stands. All of its log up to
// index is applied here, and nothing is under way. closable is what the group could close by itself
// at this moment: a wall time by this host's clock, less the lag. It returns nil if the set has
// closed more than that.
func (l *Leading) Add(group keys.PartitionID, term, index uint64, c Class, closable int64) *Ticket {
	key := c.key()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sets[key]
	if s == nil {
		l.last++
		s = &set{id: l.last, key: key, class: c, members: make(map[keys.PartitionID]*Ticket),
			peers: make(map[uint64]*listener), version: 1, logFrom: 1}
		l.sets[key], l.byID[s.id] = s, s
	}
	if s.closed.Load() > closable {
		return nil // the clock has gone back since
	}
	t := &Ticket{leading: l, set: s, group: group, term: term, index: index}
	s.members[group] = t
	s.change(change{group, t})
	t.version = s.version
	return t
}

// change makes the next version.
func (s *set) change(c change) {
	s.version++
	s.changes = append(s.changes, c)
	if most := max(leastLog, len(s.members)/2); len(s.changes) > 2*most {
		drop := len(s.changes) - most
		s.logFrom += uint64(drop)
		s.changes = slices.Delete(s.changes, 0, drop)
	}
}

// Closed is what is closed for the group, as long as it is in its set.
func (t *Ticket) Closed() int64 { return t.set.closed.Load() }

// Remove takes the group out of its set, if it is in it, and returns what was closed for it.
func (t *Ticket) Remove() (closed int64) {
	t.leading.mu.Lock()
	defer t.leading.mu.Unlock()
	closed = t.set.closed.Load()
	t.leading.remove(t)
	return closed
}

func (l *Leading) remove(t *Ticket) {
	s := t.set
	if t.gone || s.members[t.group] != t {
		return
	}
	t.gone = true
	delete(s.members, t.group)
	s.change(change{t.group, nil})
}

// Begin begins a round: what has been affirmed so far is closed, and the pings that are made from
// now on are of the round. wall is the physical clock; trusted says that it is to be gone by.
func (l *Leading) Begin(wall int64, trusted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	if !trusted {
		wall = 0
	}
	l.moments[l.round%rounds] = moment{l.round, wall}
	var affirmed []uint64
	for _, s := range l.sets {
		if len(s.members) == 0 {
			// Nobody sleeps there any more; it begins anew, with another id, when one does.
			delete(l.sets, s.key)
			delete(l.byID, s.id)
			continue
		}
		affirmed = affirmed[:0]
		for _, host := range s.class.Voters {
			if p := s.peers[host]; p != nil {
				affirmed = append(affirmed, p.affirmed)
			} else {
				affirmed = append(affirmed, 0)
			}
		}
		// This host is one of the voters, and affirms at this moment.
		slices.Sort(affirmed)
		affirmed[0] = l.round
		slices.Sort(affirmed)
		n := len(affirmed)
		if m := l.moment(affirmed[n-n/2-1]); m.wall > int64(s.class.Lag) {
			s.closed.Store(max(s.closed.Load(), m.wall-int64(s.class.Lag)))
		}
	}
}

// moment is that of a round; zero if it is not known any more.
func (l *Leading) moment(round uint64) moment {
	if m := l.moments[round%rounds]; m.round == round && round != 0 {
		return m
	}
	return moment{}
}

// Round is the present round.
func (l *Leading) Round() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.round
}

// Ping is what a host is to be told in this round.
func (l *Leading) Ping(host uint64) []*peerpb.SleepingSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	var told []*peerpb.SleepingSet
	for _, s := range l.sets {
		if slices.Contains(s.class.Voters, host) || slices.Contains(s.class.Others, host) {
			told = append(told, s.tell(host))
		}
	}
	return told
}

func (s *set) tell(host uint64) *peerpb.SleepingSet {
	p := s.peers[host]
	if p == nil {
		p = &listener{}
		s.peers[host] = p
	}
	m := &peerpb.SleepingSet{Id: s.id, From: p.acknowledged, Version: s.version,
		Closed: uint64(s.closed.Load())}
	if p.acknowledged < s.logFrom {
		s.tellAnew(p, m)
		return m
	}
	changes := s.changes[p.acknowledged-s.logFrom:]
	changes = changes[:min(len(changes), changesPerPing)]
	m.To = p.acknowledged + uint64(len(changes))
	for _, c := range changes {
		switch {
		case c.ticket == nil:
			m.Removed = append(m.Removed, uint64(c.group))
		case !c.ticket.gone && s.members[c.group] == c.ticket:
			m.Added = append(m.Added, uint64(c.group), c.ticket.term, c.ticket.index)
		}
	}
	return m
}
