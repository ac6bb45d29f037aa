package closing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Hosts close timestamps for groups that sleep and wake, are written, and elect other leaders,
// while their pings are lost, late and doubled, their processes restart, and their clocks differ.
// Nothing is ever written at or below what a replica was told to be closed.
func TestNothingIsWrittenBelowWhatIsClosed(t *testing.T) {
	closed, asleep := 0, 0
	for seed := range uint64(1500) {
		m := newModel(seed)
		for range 1500 {
			m.step()
			if m.broken != "" {
				t.Fatalf("seed %d: %s", seed, m.broken)
			}
		}
		closed, asleep = closed+m.closings, asleep+m.sleeps
	}
	if closed < 10_000 || asleep < 2_000 {
		t.Fatalf("%d timestamps were closed, and groups slept %d times: it proves nothing",
			closed, asleep)
	}
}

const (
	modelHosts  = 4
	modelGroups = 6
	modelOffset = int64(50)
	modelLag    = int64(100)
	modelTick   = int64(20)
)

type model struct {
	random  *rand.Rand
	now     int64 // the true time
	hosts   [modelHosts + 1]*modelHost
	groups  [modelGroups + 1]*modelGroup
	network []modelPing
	broken  string

	closings, sleeps int
}

type modelHost struct {
	id          uint64
	incarnation uint64
	offset      int64
	leading     *Leading
	following   *Following
	replicas    map[keys.PartitionID]*modelReplica
}

// modelGroup is what is true of a group.
type modelGroup struct {
	id     keys.PartitionID
	voters []uint64
	others []uint64
	index  uint64
	// term and leader are of the latest election; low is above what earlier leaders can have closed.
	term   uint64
	leader uint64
	low    int64
	// told is the highest timestamp that any replica was told to be closed.
	told int64
}

// modelReplica is a replica of a group as its host knows it. It is in the host's state, and
// survives its restart, but for what is in memory.
type modelReplica struct {
	model   *model
	host    *modelHost
	group   *modelGroup
	term    uint64
	leader  uint64 // 0: none is known
	applied uint64
	// In memory:
	place    *Ticket
	promised int64
	source   *Membership
}

func (r *modelReplica) Follows(host, term uint64) bool {
	return r.term == term && r.leader != r.host.id && (r.leader == 0 || r.leader == host)
}

func (r *modelReplica) SleepsIn(m *Membership) { r.source = m }

func (r *modelReplica) NoteClosed(closed hlc.Timestamp, index uint64) { r.hear(closed.Wall, index) }

// hear notes what is closed here, if it counts.
func (r *modelReplica) hear(closed int64, index uint64) {
	if index <= r.applied && closed > r.group.told {
		r.group.told = closed
		r.model.closings++
	}
}

type modelPing struct {
	from, to, incarnation, round uint64
	sets                         []*peerpb.SleepingSet
	answer                       *peerpb.SleepingAnswer
}

func newModel(seed uint64) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), now: 10_000}
	for id := uint64(1); id <= modelHosts; id++ {
		h := &modelHost{id: id, offset: m.random.Int64N(modelOffset + 1),
			replicas: make(map[keys.PartitionID]*modelReplica)}
		m.hosts[id] = h
		h.start(m)
	}
	order := m.random.Perm(modelHosts)
	for i := range modelGroups {
		g := &modelGroup{id: keys.PartitionID(i + 1), index: 1, term: 1}
		if seed%2 == 0 { // else all of them may sleep in one set
			order = m.random.Perm(modelHosts)
		}
		for _, at := range order {
			if len(g.voters) < 3 {
				g.voters = append(g.voters, uint64(at+1))
			} else if m.random.IntN(2) == 0 {
				g.others = append(g.others, uint64(at+1))
			}
		}
		g.leader = g.voters[0]
		m.groups[g.id] = g
		for _, at := range append(append([]uint64{}, g.voters...), g.others...) {
			h := m.hosts[at]
			h.replicas[g.id] = &modelReplica{model: m, host: h, group: g, term: 1, leader: g.leader,
				applied: 1}
		}
	}
	return m
}

func (h *modelHost) start(m *model) {
	h.incarnation = m.random.Uint64()
	h.leading = NewLeading()
	h.following = NewFollowing(func(id keys.PartitionID) Replica {
		if r := h.replicas[id]; r != nil {
			return r
		}
		return nil
	})
}

func (h *modelHost) wall(m *model) int64 { return m.now + h.offset }

func (m *model) host() *modelHost { return m.hosts[1+m.random.Uint64N(modelHosts)] }

func (m *model) step() {
	m.now += m.random.Int64N(modelTick / 2)
	g := m.groups[1+m.random.IntN(modelGroups)]
	switch dice := m.random.IntN(1000); {
	case dice < 400:
		m.tick(m.host())
	case dice < 850:
		m.deliver()
	case dice < 900:
		m.sleep(g)
	case dice < 935:
		m.write(g)
	case dice < 970:
		m.apply(g)
	case dice < 982:
		m.elect(g)
	case dice < 990:
		m.hear(g)
	case dice < 994:
		m.host().offset = m.random.Int64N(modelOffset + 1)
	default:
		m.restart(m.host())
	}
	for _, h := range m.hosts[1:] {
		for _, r := range h.replicas {
			if r.place != nil && !r.place.Gone() {
				r.hear(r.place.Closed(), r.applied)
			}
			if r.source != nil {
				closed, index := r.source.Closed()
				r.hear(closed.Wall, index)
			}
		}
	}
}

func (m *model) tick(h *modelHost) {
	round := h.leading.Begin(h.wall(m), m.random.IntN(20) > 0)
	for _, to := range m.hosts[1:] {
		if to != h {
			m.network = append(m.network, modelPing{h.id, to.id, h.incarnation, round,
				h.leading.Ping(to.id), h.following.Answer(to.id)})
		}
	}
}

// deliver delivers a ping, most often the oldest. It may be lost, and may come again.
func (m *model) deliver() {
	for range 1 + m.random.IntN(8) {
		if len(m.network) == 0 {
			return
		}
		i := 0
		if m.random.IntN(8) == 0 {
			i = m.random.IntN(len(m.network))
		}
		p := m.network[i]
		if m.random.IntN(8) > 0 || len(m.network) > 100 {
			m.network = append(m.network[:i], m.network[i+1:]...)
		}
		if m.random.IntN(8) == 0 {
			continue
		}
		h := m.hosts[p.to]
		if p.answer.GetIncarnation() == h.incarnation {
			h.leading.Answered(p.from, p.answer)
		}
		h.following.Heard(p.from, p.incarnation, p.round, p.sets, h.wall(m)+modelOffset)
	}
}

// leads is the replica that leads a group, if its host knows.
func (m *model) leads(g *modelGroup) *modelReplica {
	r := m.hosts[g.leader].replicas[g.id]
	if r.term != g.term || r.leader != g.leader {
		return nil // it has restarted since
	}
	return r
}

func (m *model) sleep(g *modelGroup) {
	r := m.leads(g)
	if r == nil || (r.place != nil && !r.place.Gone()) {
		return
	}
	at := r.host.wall(m) - modelLag
	r.promised = max(r.promised, at)
	r.place = r.host.leading.Add(g.id, g.term, g.index, Class{
		Voters: append([]uint64{}, g.voters...), Others: append([]uint64{}, g.others...),
		Lag: time.Duration(modelLag)}, at)
	m.sleeps++
}

func (r *modelReplica) awake() {
	if r.place != nil {
		closed := r.place.Remove()
		r.promised = max(r.promised, closed)
		r.hear(closed, r.applied) // it counts here, too
		r.place = nil
	}
}

func (m *model) write(g *modelGroup) {
	r := m.leads(g)
	if r == nil {
		return
	}
	r.awake()
	at := max(r.promised, g.low) + 1 // the lowest that it may choose
	g.index++
	r.applied = g.index
	if at <= g.told {
		m.broken = fmt.Sprintf("group %d: host %d writes at %d, and %d was closed", g.id, r.host.id, at,
			g.told)
	}
}

func (m *model) apply(g *modelGroup) {
	for _, h := range m.hosts[1:] {
		if r := h.replicas[g.id]; r != nil && m.random.IntN(2) == 0 {
			r.applied = g.index
		}
	}
}

// elect has a majority elect another leader, which may be the same. The others do not hear of it.
func (m *model) elect(g *modelGroup) {
	voters := append([]uint64{}, g.voters...)
	m.random.Shuffle(len(voters), func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	votes := voters[:len(voters)/2+1]
	g.term, g.leader = g.term+1, votes[0]
	g.low = m.hosts[g.leader].wall(m) + modelOffset
	for _, at := range votes {
		r := m.hosts[at].replicas[g.id]
		r.awake()
		r.term, r.leader = g.term, 0
		if at == g.leader {
			r.leader, r.promised = at, 0
		} else if m.random.IntN(2) == 0 {
			r.leader = g.leader
		}
		m.hosts[at].following.Changed(g.id, false)
	}
	m.hosts[g.leader].replicas[g.id].applied = g.index
}

// hear has former leaders hear of the group's term, and of nothing else.
func (m *model) hear(g *modelGroup) {
	for _, h := range m.hosts[1:] {
		if r := h.replicas[g.id]; r != nil && r.place != nil && r.term < g.term {
			r.awake()
			r.term, r.leader = g.term, g.leader
			h.following.Changed(g.id, false)
		}
	}
}

// restart ends a host's process and begins another one. Raft's term is on its disk.
func (m *model) restart(h *modelHost) {
	h.start(m)
	for _, r := range h.replicas {
		r.place, r.promised, r.source, r.leader = nil, 0, nil, 0
	}
	for _, other := range m.hosts[1:] {
		if other != h {
			other.leading.Forget(h.id)
		}
	}
}
