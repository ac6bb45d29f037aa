package bootstrap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// sim is servers and the messages between them, which are delivered in any order, late, twice or
// never. The disk of a server is the state that its machine adopted.
type sim struct {
	t        *rapid.T
	servers  []*simServer
	messages []message
	lastID   uint64
	// accepted has every founding that a server, by name, ever had on disk as accepted; founded
	// every one that was founded.
	accepted map[uint64]uint64
	founded  map[uint64]*clusterpb.Founding
}

type simServer struct {
	address string
	core    []string
	machine *machine
	failed  error
}

type message struct {
	to     int
	hello  *clusterpb.BootstrapHello
	accept *clusterpb.Founding
}

func (s *sim) id() uint64 { s.lastID++; return s.lastID }

// open starts a server on what its disk has; nil: an empty disk.
func (s *sim) open(i int, disk *bootstrappb.State) {
	server := s.servers[i]
	if disk == nil {
		disk = &bootstrappb.State{Server: s.id(), Address: server.address}
	}
	server.machine, server.failed = newMachine(server.address, server.core, disk)
}

// step keeps what a step says has to be kept, or crashes before or after.
func (s *sim) step(i int, next *bootstrappb.State, err error) bool {
	server := s.servers[i]
	if err != nil {
		if !errors.Is(err, ErrRefused) {
			server.failed = err
		}
		return false
	}
	if next == nil {
		return true
	}
	crash := rapid.IntRange(0, 9).Draw(s.t, "crash")
	if crash == 0 {
		s.open(i, server.machine.disk)
		return false
	}
	if f := next.Accepted; f != nil {
		if was, ok := s.accepted[next.Server]; ok && was != f.Cluster {
			s.t.Fatalf("server %d accepted %d after %d", next.Server, f.Cluster, was)
		}
		s.accepted[next.Server] = f.Cluster
	}
	if next.Founded {
		s.founded[next.Accepted.Cluster] = fromDisk(next.Accepted)
		for _, m := range next.Accepted.Members {
			if s.accepted[m.Server] != next.Accepted.Cluster {
				s.t.Fatalf("cluster %d is founded, and %s has not accepted it",
					next.Accepted.Cluster, m.Address)
			}
		}
	}
	server.machine.adopt(next)
	if crash == 1 {
		s.open(i, next)
		return false
	}
	return true
}

func (s *sim) index(address string) int {
	for i, server := range s.servers {
		if server.address == address {
			return i
		}
	}
	return -1
}

func (s *sim) hello(i int) {
	m := s.servers[i].machine
	for _, address := range m.core {
		if j := s.index(address); j >= 0 && j != i {
			s.messages = append(s.messages, message{to: j, hello: m.hello()})
		}
	}
}

func (s *sim) deliver(msg message) {
	server := s.servers[msg.to]
	if server.failed != nil {
		return
	}
	if msg.hello != nil {
		next, err := server.machine.hear(msg.hello)
		s.step(msg.to, next, err)
		return
	}
	next, err := server.machine.accept(msg.accept)
	if s.step(msg.to, next, err) && server.failed == nil {
		next, err = server.machine.conclude()
		s.step(msg.to, next, err)
	}
}

func (s *sim) propose(i int) {
	m := s.servers[i].machine
	f, next := m.propose(s.id())
	if f == nil || !s.step(i, next, nil) {
		return
	}
	for _, member := range f.Members {
		if j := s.index(member.Address); j >= 0 && j != i {
			s.messages = append(s.messages, message{to: j, accept: f})
		}
	}
	next, err := s.servers[i].machine.conclude()
	s.step(i, next, err)
}

// Whatever the order of messages, crashes, wiped disks and changed lists: no two foundings over a
// common server, and no server belongs to a core that does not have all its members' agreement.
// Without wiped disks and differing lists the core is formed once messages get through.
func TestNeverTwoFoundings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sim{t: t, accepted: map[uint64]uint64{}, founded: map[uint64]*clusterpb.Founding{}}
		n := rapid.SampledFrom([]int{1, 3, 3, 5}).Draw(t, "servers")
		var list []string
		for i := range n {
			list = append(list, string(rune('a'+i)))
		}
		faulty := rapid.Bool().Draw(t, "wipe disks and change lists")
		// a list in which another server takes the place of the first
		other := append([]string{"x"}, list[1:]...)
		servers := list
		if faulty && n > 1 {
			servers = append(servers, "x")
		}
		for i, address := range servers {
			core := list
			if address == "x" {
				core = other
			}
			s.servers = append(s.servers, &simServer{address: address, core: core})
			s.open(i, nil)
		}
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			i := rapid.IntRange(0, len(s.servers)-1).Draw(t, "server")
			server := s.servers[i]
			switch action := rapid.IntRange(0, 19).Draw(t, "action"); {
			case server.failed != nil || action == 0:
				if server.machine != nil {
					s.open(i, server.machine.disk)
				}
			case action == 1 && faulty:
				s.open(i, nil)
			case action == 2 && faulty && len(server.core) > 1 && server.address != "a" &&
				server.address != "x":
				server.core = [][]string{list, other}[rapid.IntRange(0, 1).Draw(t, "list")]
				disk := server.machine.disk
				if s.open(i, disk); server.failed != nil {
					// The server refuses to start with this list; it is started with the one of old.
					server.core = memberAddresses(fromDisk(disk.Accepted))
					s.open(i, disk)
				}
			case action < 6:
				s.hello(i)
			case action < 9:
				s.propose(i)
			case len(s.messages) > 0:
				at := rapid.IntRange(0, len(s.messages)-1).Draw(t, "message")
				msg := s.messages[at]
				if rapid.IntRange(0, 3).Draw(t, "again") > 0 {
					s.messages = append(s.messages[:at], s.messages[at+1:]...)
				}
				s.deliver(msg)
			}
		}
		servedBy := map[uint64]uint64{}
		for cluster, f := range s.founded {
			for _, m := range f.Members {
				if was, ok := servedBy[m.Server]; ok {
					t.Fatalf("server %d is a member of clusters %d and %d", m.Server, was, cluster)
				}
				servedBy[m.Server] = cluster
			}
		}
		if faulty {
			return
		}
		if len(s.founded) > 1 {
			t.Fatalf("%d cores were formed: %v", len(s.founded), s.founded)
		}
		for range 50 {
			for i, server := range s.servers {
				if server.failed != nil {
					t.Fatalf("%s failed: %v", server.address, server.failed)
				}
				s.hello(i)
				s.propose(i)
			}
			for ; len(s.messages) > 0; s.messages = s.messages[1:] {
				s.deliver(s.messages[0])
			}
		}
		for _, server := range s.servers {
			if f := server.machine.founded(); f == nil || len(s.founded) != 1 ||
				s.founded[f.Cluster] == nil {
				t.Fatalf("%s: %v; formed were %v; it says %q", server.address, f, s.founded,
					server.machine.obstacle())
			}
		}
	})
}

func TestLists(t *testing.T) {
	disk := &bootstrappb.State{Server: 1}
	for name, c := range map[string]struct {
		self string
		core []string
		disk *bootstrappb.State
		want string
	}{
		"repeated": {"a", []string{"a", "b", "b"}, disk, "repeated"},
		"other address": {"a", []string{"a"}, &bootstrappb.State{Server: 1, Address: "z",
			Accepted: &bootstrappb.Founding{Cluster: 9}}, "has agreed to form a core as z"},
	} {
		if _, err := newMachine(c.self, c.core, c.disk); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one that says %q", name, err, c.want)
		}
	}
	founded := &bootstrappb.State{Server: 1, Founded: true,
		Accepted: &bootstrappb.Founding{Cluster: 9, Members: []*bootstrappb.Member{
			{Address: "a", Replica: 1, Server: 1}, {Address: "b", Replica: 2, Server: 2},
			{Address: "c", Replica: 3, Server: 3},
		}}}
	if _, err := newMachine("a", []string{"c", "b", "a"}, founded); err != nil {
		t.Errorf("the same list in another order: %v", err)
	}
	// Once it is founded the list only says where to look, and the address may be another.
	if _, err := newMachine("z", []string{"a", "d"}, founded); err != nil {
		t.Errorf("another list and address: %v", err)
	}
}

func TestObstacles(t *testing.T) {
	core := []string{"a", "b", "c"}
	hello := func(address string, server uint64, list ...string) *clusterpb.BootstrapHello {
		return &clusterpb.BootstrapHello{Address: address, Server: server, Core: list}
	}
	for name, c := range map[string]struct {
		heard []*clusterpb.BootstrapHello
		want  string
	}{
		"silence": {[]*clusterpb.BootstrapHello{hello("b", 2, core...)}, "waits for c"},
		"lists": {[]*clusterpb.BootstrapHello{hello("b", 2, "a", "b", "d")},
			"only a has c; only b has d"},
		"one server": {[]*clusterpb.BootstrapHello{hello("b", 2, core...), hello("c", 2, core...)},
			"b and c are one server"},
		"itself": {[]*clusterpb.BootstrapHello{hello("b", 1, core...), hello("c", 2, core...)},
			"a and b are one server"},
		"stranger": {[]*clusterpb.BootstrapHello{hello("b", 2, core...), hello("z", 2, core...)},
			"waits for c"},
	} {
		m, err := newMachine("a", core, &bootstrappb.State{Server: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range c.heard {
			if _, err := m.hear(h); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.obstacle(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if f, _ := m.propose(7); f != nil {
			t.Errorf("%s: it proposes", name)
		}
	}
}

func TestListThatFormsNoCore(t *testing.T) {
	for _, core := range [][]string{{"a", "b"}, {"b", "c", "d"}, {"a", "b", "c", "d", "e", "f"}} {
		m, err := newMachine("a", core, &bootstrappb.State{Server: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.obstacle(); !strings.Contains(got, "1, 3 or 5") {
			t.Errorf("%v: %q", core, got)
		}
		if f, _ := m.propose(7); f != nil {
			t.Errorf("%v: it proposes", core)
		}
	}
}

func TestRefusesMalformedFoundings(t *testing.T) {
	core := []string{"a", "b", "c"}
	member := func(address string, replica, server uint64) *clusterpb.CoreMember {
		return &clusterpb.CoreMember{Address: address, Replica: replica, Server: server}
	}
	for i, f := range []*clusterpb.Founding{
		nil, {}, {Cluster: 1},
		{Cluster: 1, Members: []*clusterpb.CoreMember{nil, nil, nil}},
		{Members: []*clusterpb.CoreMember{member("a", 1, 1), member("b", 2, 2), member("c", 3, 3)}},
		{Cluster: 1, Members: []*clusterpb.CoreMember{member("b", 1, 2), member("a", 2, 1),
			member("c", 3, 3)}},
		{Cluster: 1, Members: []*clusterpb.CoreMember{member("a", 1, 1), member("b", 1, 2),
			member("c", 3, 3)}},
		{Cluster: 1, Members: []*clusterpb.CoreMember{member("a", 1, 1), member("b", 2, 0),
			member("c", 3, 3)}},
		{Cluster: 1, Members: []*clusterpb.CoreMember{member("a", 1, 5), member("b", 2, 2),
			member("c", 3, 3)}},
		{Cluster: 1, Members: []*clusterpb.CoreMember{member("a", 1, 1)}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m, err := newMachine("a", core, &bootstrappb.State{Server: 1})
			if err != nil {
				t.Fatal(err)
			}
			if next, err := m.accept(f); !errors.Is(err, ErrRefused) || next != nil {
				t.Errorf("%v: %v, %v", f, next, err)
			}
		})
	}
}
