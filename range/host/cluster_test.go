package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is three hosts in one process, on disks that crash and a network that can be cut.
type cluster struct {
	t     *testing.T
	net   *network
	hosts map[uint64]*node
	// reopen, when set, opens what a host finds on its disk.
	reopen func(*node, raftlog.Identity)
	// machineOf, when set, makes the state machines that the groups see.
	machineOf func(*machine) group.StateMachine
}

type node struct {
	id       uint64
	fs       *vfs.MemFS
	db       *engine.Log
	host     *Host
	machines map[keys.PartitionID]*machine
	wall     offset
}

// offset is the system's clock, wrong by so much.
type offset struct{ atomic.Int64 }

func (o *offset) Now() int64 { return time.Now().UnixNano() + o.Load() }

// machine is a state machine that remembers what it applied. Its "disk" outlives the host.
type machine struct {
	mu         sync.Mutex
	index      uint64
	term       uint64
	values     []string
	leadership group.Leadership
	wasLeader  []uint64
	// applies counts calls of Apply.
	applies int
	// staged, installs and discarded count the snapshots that were received, whose installation
	// began, and that no caller wanted.
	staged, installs, discarded int
	// onInstall, when set, is called before the nth snapshot (from 1) is installed.
	onInstall func(n int) error
}

func (m *machine) Applied() (uint64, uint64) { return m.index, m.term }

func (m *machine) Apply(entries []group.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applies++
	for _, e := range entries {
		if e.Index != m.index+1 {
			return fmt.Errorf("entry %d after %d", e.Index, m.index)
		}
		if l := m.leadership; l.IsLeader && l.Term < e.Term {
			return fmt.Errorf("entry %d of term %d, and it was not told that term %d, in which it "+
				"leads, is over", e.Index, e.Term, l.Term)
		}
		m.index, m.term = e.Index, e.Term
		if string(e.Data) == "poison" {
			return fmt.Errorf("cannot apply this")
		}
		if len(e.Data) > 0 {
			m.values = append(m.values, string(e.Data))
		}
	}
	return nil
}

func (m *machine) DurableApplied() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index, nil
}

func (m *machine) LeadershipChanged(l group.Leadership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leadership = l
	if l.IsLeader {
		m.wasLeader = append(m.wasLeader, l.Term)
	}
}

func (m *machine) state() (uint64, []string, group.Leadership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index, append([]string(nil), m.values...), m.leadership
}

// snapshots returns how many snapshots were received, and how many of them began to be installed.
func (m *machine) snapshots() (staged, installs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.staged, m.installs
}

type machineSnapshot struct {
	index, term uint64
	values      []string
}

func (m *machine) Snapshot() (group.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &machineSnapshot{m.index, m.term, append([]string(nil), m.values...)}, nil
}

func (s *machineSnapshot) Index() uint64 { return s.index }
func (s *machineSnapshot) Term() uint64  { return s.term }
func (s *machineSnapshot) Close() error  { return nil }
func (s *machineSnapshot) Write(_ context.Context, w io.Writer) error {
	for _, v := range s.values {
		if _, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(v))),
			v...)); err != nil {
			return err
		}
	}
	return nil
}

type stagedMachine struct {
	*machine
	index, term uint64
	values      []string
}

func (m *machine) StageSnapshot(_ context.Context, index, term uint64, r io.Reader) (group.Staged,
	error) {
	s := &stagedMachine{machine: m, index: index, term: term}
	for {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err == io.EOF {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.staged++
			return s, nil
		} else if err != nil {
			return nil, err
		}
		v := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(r, v); err != nil {
			return nil, err
		}
		s.values = append(s.values, string(v))
	}
}

func (s *stagedMachine) Install() error {
	s.mu.Lock()
	s.installs++
	n, on := s.installs, s.onInstall
	s.mu.Unlock()
	if on != nil {
		if err := on(n); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.index, s.machine.term, s.machine.values = s.index, s.term, s.values
	return nil
}

func (s *stagedMachine) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded++
}

func (m *machine) discards() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.discarded
}

// network delivers in order per pair of hosts, asynchronously, and takes no time. It fails the test
// if hosts go on answering each other without that any time passes.
type network struct {
	t        *testing.T
	mu       sync.Mutex
	handlers map[uint64]peer.Handler
	cut      map[[2]uint64]bool
	links    map[[2]uint64]chan *peerpb.MessageBatch
	done     chan struct{}
	running  sync.WaitGroup
	messages int
	// instant is when the last message was sent, and atOnce how many were sent then.
	instant time.Time
	atOnce  int
	// batches, if it is not nil, gets those that carry entries.
	batches map[[2]uint64][]*peerpb.MessageBatch
	// onBatch, when set, is shown all batches, under the lock.
	onBatch func(from, to uint64, b *peerpb.MessageBatch)
	// onMessage, when set, is shown all messages, under the lock.
	onMessage func(*peerpb.RaftMessage)
	// onStream, when set, is called several times while the nth snapshot (from 1) is sent.
	onStream func(ctx context.Context, n int) error
	streams  int
}

// streamed returns how many snapshots began to be sent.
func (n *network) streamed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.streams
}

// mostAtOnce bounds the messages of all hosts in a moment. In a bubble of synctest that is all that
// follows from one event; what comes of a hundred groups that are created is a few thousand.
const mostAtOnce = 200_000

// endless says whether messages beget messages without end: then no more are delivered, so that the
// test comes to an end. It is called with the lock.
func (n *network) endless(b *peerpb.MessageBatch) bool {
	if now := time.Now(); !now.Equal(n.instant) && n.atOnce < mostAtOnce {
		n.instant, n.atOnce = now, 0
	}
	if len(b.Messages) == 0 || n.atOnce >= mostAtOnce {
		return n.atOnce >= mostAtOnce
	}
	if n.atOnce += len(b.Messages); n.atOnce+10 > mostAtOnce {
		n.t.Errorf("%d messages were sent while no time has passed; one of them: %v", n.atOnce,
			b.Messages[0])
	}
	return false
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, handlers: map[uint64]peer.Handler{}, cut: map[[2]uint64]bool{},
		links: map[[2]uint64]chan *peerpb.MessageBatch{}, done: make(chan struct{})}
}

func (n *network) attach(id uint64, h peer.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[id] = h
}

func (n *network) target(from, to uint64) peer.Handler {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[[2]uint64{from, to}] {
		return nil
	}
	return n.handlers[to]
}

func (n *network) isolate(id uint64, isolated bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := uint64(1); other <= 6; other++ {
		n.cut[[2]uint64{id, other}] = isolated
		n.cut[[2]uint64{other, id}] = isolated
	}
}

func (n *network) send(from, to uint64, b *peerpb.MessageBatch) {
	key := [2]uint64{from, to}
	n.mu.Lock()
	n.messages += len(b.Messages)
	if n.endless(b) {
		n.mu.Unlock()
		return
	}
	if n.onBatch != nil {
		n.onBatch(from, to, b)
	}
	if n.onMessage != nil {
		for _, m := range b.Messages {
			n.onMessage(m)
		}
	}
	if n.batches != nil &&
		slices.ContainsFunc(b.Messages,
			func(m *peerpb.RaftMessage) bool { return len(m.Entries) > 0 }) {
		n.batches[key] = append(n.batches[key], b)
	}
	link := n.links[key]
	if link == nil {
		link = make(chan *peerpb.MessageBatch, 100_000)
		n.links[key] = link
		n.running.Add(1)
		go func() {
			defer n.running.Done()
			for {
				select {
				case <-n.done:
					return
				case b := <-link:
					if h := n.target(from, to); h != nil {
						raw, err := b.MarshalVT()
						copied := &peerpb.MessageBatch{}
						if err == nil {
							err = copied.UnmarshalVTUnsafe(raw)
						}
						if err != nil {
							panic(err)
						}
						h.HandleMessages(from, copied)
					}
				}
			}
		}()
	}
	n.mu.Unlock()
	link <- b
}

type port struct {
	net  *network
	self uint64
}

func (p port) Send(to uint64, _ peer.Class, messages []*peerpb.RaftMessage) {
	p.net.send(p.self, to, &peerpb.MessageBatch{Messages: messages})
}

func (p port) Ping(to uint64, ping *peerpb.HostPing, beside []*peerpb.RaftMessage) {
	p.net.send(p.self, to, &peerpb.MessageBatch{Ping: ping, Messages: beside})
}

func (p port) SendSnapshot(ctx context.Context, to uint64, header *peerpb.SnapshotHeader,
	write func(io.Writer) error) error {
	p.net.mu.Lock()
	p.net.streams++
	n, on := p.net.streams, p.net.onStream
	p.net.mu.Unlock()
	b := streamBuffer{between: func() error { return nil }}
	if on != nil {
		b.between = func() error { return on(ctx, n) }
	}
	if err := write(&b); err != nil {
		return err
	}
	h := p.net.target(p.self, to)
	if h == nil {
		return fmt.Errorf("no way to host %d", to)
	}
	return h.HandleSnapshot(ctx, p.self, header, &b.Buffer)
}

// streamBuffer calls between at every 50th write.
type streamBuffer struct {
	bytes.Buffer
	writes  int
	between func() error
}

func (b *streamBuffer) Write(p []byte) (int, error) {
	if b.writes++; b.writes%50 == 1 {
		if err := b.between(); err != nil {
			return 0, err
		}
	}
	return b.Buffer.Write(p)
}

// applyAfter is when the clusters' followers apply.
const applyAfter = 5 * time.Millisecond

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, net: newNetwork(t), hosts: map[uint64]*node{}}
	for id := uint64(1); id <= 3; id++ {
		c.hosts[id] = &node{id: id, fs: vfs.NewCrashableMem(),
			machines: map[keys.PartitionID]*machine{}}
		c.start(id)
	}
	return c
}

func (c *cluster) close() {
	for id := range c.hosts {
		c.stop(id)
	}
	close(c.net.done)
	c.net.running.Wait()
}

func (c *cluster) start(id uint64) {
	n := c.hosts[id]
	var err error
	if n.db, err = engine.OpenLog(engine.Options{FS: n.fs, Dir: "log"}); err != nil {
		c.t.Fatal(err)
	}
	steady := hlc.NewSteady(&n.wall, hlc.SystemMonotonic(), 250*time.Millisecond)
	n.host,
		err = New(Config{Self: id, Log: n.db,
		Clock: hlc.NewClock(steady, hlc.FixedBound(250*time.Millisecond)), RetainLogBytes: 20_000,
		Shards:              3,
		FollowersApplyAfter: applyAfter})
	if err != nil {
		c.t.Fatal(err)
	}
	ids, err := n.host.Log().Identities()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, identity := range ids {
		switch {
		case identity.Removed:
		case c.reopen != nil:
			c.reopen(n, identity)
		default:
			c.open(n, identity, false)
		}
	}
	n.host.Start(port{c.net, id})
	c.net.attach(id, n.host)
}

func (c *cluster) stop(id uint64) {
	n := c.hosts[id]
	if n.host == nil {
		return
	}
	c.net.attach(id, nil)
	n.host.Close()
	if err := n.db.Close(); err != nil {
		c.t.Fatal(err)
	}
	n.host = nil
}

// crash stops a host and loses what its log had not synced.
func (c *cluster) crash(id uint64) {
	n := c.hosts[id]
	clone := n.fs.CrashClone(vfs.CrashCloneCfg{})
	c.stop(id)
	n.fs = clone
}

func (c *cluster) open(n *node, identity raftlog.Identity, fresh bool) *Group {
	m := n.machines[identity.Group]
	if m == nil {
		m = &machine{}
		n.machines[identity.Group] = m
	}
	g,
		err := n.host.Open(GroupConfig{Identity: identity, New: fresh,
		Hosts: map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3},
		Open: func(*Group) (group.StateMachine, error) {
			if c.machineOf != nil {
				return c.machineOf(m), nil
			}
			return m, nil
		}})
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

// create makes groups on all hosts; replica i is on host i.
func (c *cluster) create(groups ...keys.PartitionID) {
	for _, n := range c.hosts {
		for _, id := range groups {
			identity := raftlog.Identity{Group: id, Replica: keys.ReplicaID(n.id),
				Voters: []keys.ReplicaID{1, 2, 3}}
			if err := n.host.Log().Create(identity); err != nil {
				c.t.Fatal(err)
			}
			c.open(n, identity, true)
		}
	}
	for i, id := range groups {
		c.hosts[uint64(i%3)+1].host.Group(id).Campaign()
	}
}

// await waits in virtual time.
func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	for range 600 {
		synctest.Wait()
		if ok() {
			return
		}
		// virtual: the condition is asked again when the cluster has moved
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("still waiting for %s", what)
}

// leader returns the host that holds the lease of a group, after checking that no two do.
func (c *cluster) leader(id keys.PartitionID) (leader *node, term uint64) {
	for _, n := range c.hosts {
		if n.host == nil {
			continue
		}
		if g := n.host.Group(id); g != nil {
			if t, ok := g.Lease(); ok {
				if leader != nil {
					c.t.Fatalf("hosts %d and %d both hold the lease of %s", leader.id, n.id, id)
				}
				leader, term = n, t
			}
		}
	}
	return leader, term
}

func (c *cluster) awaitLeader(id keys.PartitionID) (*node, uint64) {
	c.t.Helper()
	var n *node
	var term uint64
	c.await(fmt.Sprintf("a leader of %s", id),
		func() bool { n, term = c.leader(id); return n != nil })
	return n, term
}

// propose proposes at the leader and waits until all running hosts applied it.
func (c *cluster) propose(id keys.PartitionID, value string) {
	c.t.Helper()
	n, term := c.awaitLeader(id)
	if err := n.host.Group(id).Propose(term, []byte(value)); err != nil {
		c.t.Fatal(err)
	}
	c.await("all to apply "+value, func() bool { return c.everywhere(id, value) })
}

func (c *cluster) everywhere(id keys.PartitionID, value string) bool {
	for _, n := range c.hosts {
		if n.host == nil || n.host.Group(id) == nil {
			continue
		}
		_, values, _ := n.machines[id].state()
		if len(values) == 0 || values[len(values)-1] != value {
			return false
		}
	}
	return true
}
