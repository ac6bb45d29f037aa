package kvtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// MessageFaults is what becomes of Raft messages: each of them, by itself, with these probabilities
// in percent. Late messages, and the copies of repeated ones, come after a random time of up to
// MaxDelay, and so in another order.
type MessageFaults struct {
	Lose, Late, Repeat int
	MaxDelay           time.Duration
}

// Messages is what happens to the Raft messages between servers: above the connections, on which
// nothing gets lost or out of order. Snapshots and pings are not among them. It also remembers the
// last messages of each link: see Trace.
type Messages struct {
	began  time.Time
	server map[string]int // by address

	mu struct {
		sync.Mutex
		observe func(Sent)
		random  *rand.Rand
		faults  map[[2]int]MessageFaults
		traces  map[[2]int]*trace
	}
}

// Sent is a Raft message that a server has sent to another one.
type Sent struct {
	From, To int
	// Process counts the processes that From has had, from 1; Started is when this one was.
	Process int
	Started time.Time
	// Realm is "data" or "core"; groups and replicas of the two have nothing to do with each other.
	Realm string
	// Message is the sender's: nothing of it is kept.
	Message *peerpb.RaftMessage
}

// Observe has a function called with every message before it is sent, and before it gets lost, by
// whatever goroutine sends it: it must be quick and must not block. What a server says whose power
// was taken reaches no server, and is not reported.
func (m *Messages) Observe(f func(Sent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.observe = f
}

// traced is how many messages are remembered of each link.
const traced = 64

// trace is a ring of the last messages from one server to another.
type trace struct {
	ring  [traced]message
	count int
}

// message is what is remembered of one.
type message struct {
	at                         time.Duration
	realm                      string
	group, term, index, commit uint64
	from, to                   uint64
	kind                       raftpb.MessageType
	entries                    int
	reject                     bool
	fate                       string // nothing, or what became of it
}

func newMessages(c *Cluster) *Messages {
	m := &Messages{began: time.Now(), server: make(map[string]int)}
	for i, s := range c.servers {
		m.server[s.address()] = i
	}
	m.mu.random = c.random()
	m.mu.faults = make(map[[2]int]MessageFaults)
	m.mu.traces = make(map[[2]int]*trace)
	return m
}

// Set sets what happens to messages from one server to another from now on; the zero value ends it.
// What is late still comes.
func (m *Messages) Set(from, to int, f MessageFaults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f == (MessageFaults{}) {
		delete(m.mu.faults, [2]int{from, to})
		return
	}
	m.mu.faults[[2]int{from, to}] = f
}

// Heal ends all faults.
func (m *Messages) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.mu.faults)
}

// filter is the filter of a server's process.
func (m *Messages) filter(server int, l *life) embedded.PeerFilter {
	return func(to embedded.PeerLink, messages []*peerpb.RaftMessage,
		send func([]*peerpb.RaftMessage)) {
		receiver, known := m.server[to.Address]
		if !known {
			send(messages)
			return
		}
		m.mu.Lock()
		observe := m.mu.observe
		m.mu.Unlock()
		if observe != nil {
			for _, r := range messages {
				if !l.over.Load() {
					observe(Sent{server, receiver, l.number, l.began, to.Realm, r})
				}
			}
		}
		if now := m.pass([2]int{server, receiver}, to.Realm, messages, send); len(now) > 0 {
			send(now)
		}
	}
}

// pass records messages, and gives those that are to be sent at once.
func (m *Messages) pass(link [2]int, realm string, messages []*peerpb.RaftMessage,
	send func([]*peerpb.RaftMessage)) []*peerpb.RaftMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.traces[link]
	if t == nil {
		t = &trace{}
		m.mu.traces[link] = t
	}
	faults, faulty := m.mu.faults[link]
	if !faulty {
		for _, r := range messages {
			m.record(t, realm, r, "")
		}
		return messages
	}
	var now []*peerpb.RaftMessage
	later := func(r *peerpb.RaftMessage) {
		again := []*peerpb.RaftMessage{proto.Clone(r).(*peerpb.RaftMessage)}
		time.AfterFunc(time.Duration(m.mu.random.Int64N(int64(faults.MaxDelay)+1)),
			func() { send(again) })
	}
	for _, r := range messages {
		fate := ""
		switch n := m.mu.random.IntN(100); {
		case n < faults.Lose:
			fate = "lost"
		case n < faults.Lose+faults.Late:
			fate = "late"
			later(r)
		case n < faults.Lose+faults.Late+faults.Repeat:
			fate = "repeated"
			later(r)
			now = append(now, r)
		default:
			now = append(now, r)
		}
		m.record(t, realm, r, fate)
	}
	return now
}

func (m *Messages) record(t *trace, realm string, r *peerpb.RaftMessage, fate string) {
	t.ring[t.count%traced] = message{
		at: time.Since(m.began), realm: realm, group: r.GetGroup(), term: r.GetTerm(),
		index: r.GetIndex(), commit: r.GetCommit(),
		from: r.GetFrom(), to: r.GetTo(), kind: raftpb.MessageType(r.GetType()),
		entries: len(r.GetEntries()), reject: r.GetReject(), fate: fate,
	}
	t.count++
}

// Trace is the last messages of each link between two servers, in the order in which they were
// sent.
func (m *Messages) Trace() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	links := make([][2]int, 0, len(m.mu.traces))
	for link := range m.mu.traces {
		links = append(links, link)
	}
	slices.SortFunc(links, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for _, link := range links {
		t := m.mu.traces[link]
		fmt.Fprintf(&b, "from server %d to server %d, %d messages, the last of them:\n", link[0],
			link[1], t.count)
		for i := max(0, t.count-traced); i < t.count; i++ {
			s := &t.ring[i%traced]
			fmt.Fprintf(&b, "  [%v] %s group %d: %s from %d to %d, term %d, index %d, commit "+
				"%d, %d entries", s.at.Round(time.Microsecond), s.realm,
				s.group, s.kind, s.from, s.to, s.term, s.index, s.commit, s.entries)
			if s.reject {
				b.WriteString(", reject")
			}
			if s.fate != "" {
				b.WriteString(": " + s.fate)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
