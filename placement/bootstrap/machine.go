package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// machine is the protocol of one server. It does no I/O: a step returns the state that must be on
// disk before anything that follows from it is sent, and adopt makes that state the machine's own.
type machine struct {
	self string
	core []string // sorted
	disk *bootstrappb.State
	// exists is set if a core existed already when this server looked for one to form.
	exists *NotMemberError
	// late is set if the server takes no part in forming a core, and offers itself to an existing
	// one.
	late bool
	// coordination is set if it keeps the coordination store when it is a member.
	coordination bool
	// heard holds the latest hello of each listed peer, by address. Hellos of other servers are not
	// kept.
	heard map[string]*clusterpb.BootstrapHello
}

func newMachine(self string, core []string, disk *bootstrappb.State) (*machine, error) {
	m := &machine{self: self, core: slices.Clone(core), disk: disk,
		heard: map[string]*clusterpb.BootstrapHello{}}
	slices.Sort(m.core)
	for i, address := range m.core {
		if address == "" || (i > 0 && address == m.core[i-1]) {
			return nil, fmt.Errorf("the --core list %q has an empty or a repeated address", core)
		}
	}
	if disk.Address != "" && disk.Address != self && disk.Accepted != nil && !disk.Founded {
		return nil, fmt.Errorf("this data directory has agreed to form a core as "+
			"%s, and the server was started as %s; start it as %s, or with a directory of its own",
			disk.Address, self, disk.Address)
	}
	return m, nil
}

// hello returns this server's hello.
func (m *machine) hello() *clusterpb.BootstrapHello {
	return &clusterpb.BootstrapHello{
		Server: m.disk.Server, Address: m.self, Core: m.core, Accepted: fromDisk(m.belongs()),
		Founded: m.disk.Founded || m.disk.Joined != nil, Offers: m.offers(), Removed: m.disk.Removed,
		Changes: true, Coordination: m.coordination,
	}
}

// belongs returns the core of which this server is, was or may become a member; nil: none.
func (m *machine) belongs() *bootstrappb.Founding {
	if m.disk.Joined != nil {
		return m.disk.Joined
	}
	return m.disk.Accepted
}

// offers reports whether this server can be added to a core as a member.
func (m *machine) offers() bool {
	return (m.late || m.exists != nil) && m.belongs() == nil && !m.disk.Removed
}

// canForm reports whether a core can be formed from the list, with this server in it.
func (m *machine) canForm() bool {
	n := len(m.core)
	return (n == 1 || n == 3 || n == 5) && slices.Contains(m.core, m.self)
}

// founded returns the core to which this server belongs; nil if there is none yet.
func (m *machine) founded() *clusterpb.Founding {
	if !m.disk.Founded {
		return nil
	}
	return fromDisk(m.disk.Accepted)
}

// hear processes a peer's hello.
func (m *machine) hear(h *clusterpb.BootstrapHello) (next *bootstrappb.State, err error) {
	if h.GetAddress() == m.self || !slices.Contains(m.core, h.GetAddress()) {
		return nil, nil
	}
	m.heard[h.Address] = h
	return m.conclude()
}

// conclude determines whether the core is founded: a peer says so, or all members have accepted.
func (m *machine) conclude() (next *bootstrappb.State, err error) {
	if m.disk.Founded || m.disk.Joined != nil || m.late {
		return nil, nil
	}
	for _, address := range m.core {
		h := m.heard[address]
		if h == nil || !h.Founded || h.Accepted == nil {
			continue
		}
		f := h.Accepted
		if !m.names(f) {
			m.exists = &NotMemberError{Self: m.self, Peer: h.Address, Server: m.disk.Server, Founding: f}
			return nil, nil
		}
		if m.disk.Accepted != nil && !equal(fromDisk(m.disk.Accepted), f) {
			// Impossible as long as disks keep what was synced.
			return nil, fmt.Errorf("%w: it has accepted cluster %016x, and %s belongs to cluster "+
				"%016x, which names it as a member",
				ErrState, m.disk.Accepted.Cluster, h.Address, f.Cluster)
		}
		return m.with(func(s *bootstrappb.State) { s.Accepted, s.Founded = toDisk(f), true }), nil
	}
	mine := fromDisk(m.disk.Accepted)
	if mine == nil {
		return nil, nil
	}
	for _, member := range mine.Members {
		if member.Address == m.self {
			continue
		}
		if h := m.heard[member.Address]; h == nil || h.Server != member.Server ||
			!equal(h.Accepted, mine) {
			return nil, nil
		}
	}
	return m.with(func(s *bootstrappb.State) { s.Founded = true }), nil
}

// accept processes the proposer's request. A founding that was accepted before is accepted again.
func (m *machine) accept(f *clusterpb.Founding) (next *bootstrappb.State, err error) {
	if err := validate(f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if m.late || m.exists != nil || m.disk.Joined != nil || m.disk.Removed {
		return nil, fmt.Errorf("%w: %s forms no core: it is, or was, or offers itself as, a member of "+
			"one that exists", ErrRefused, m.self)
	}
	if mine := fromDisk(m.disk.Accepted); mine != nil {
		if !equal(mine, f) {
			return nil, fmt.Errorf("%w: %s has accepted cluster %016x, and does not accept %016x",
				ErrRefused, m.self, mine.Cluster, f.Cluster)
		}
		return m.conclude()
	}
	if list := memberAddresses(f); !slices.Equal(list, m.core) {
		return nil, fmt.Errorf("%w: %s", ErrRefused, m.listsDiffer("the founding", list))
	}
	if !m.names(f) {
		return nil, fmt.Errorf("%w: it names another data directory at %s", ErrRefused, m.self)
	}
	return m.with(func(s *bootstrappb.State) { s.Accepted = toDisk(f) }), nil
}

// propose returns the founding that this server proposes, if it is the one to propose and all
// conditions are met. random is the id of the cluster, if a new founding is made.
func (m *machine) propose(random uint64) (f *clusterpb.Founding, next *bootstrappb.State) {
	if m.disk.Founded || m.late || m.exists != nil || m.disk.Joined != nil || m.disk.Removed ||
		!m.canForm() || m.core[0] != m.self {
		return nil, nil
	}
	if m.disk.Proposed != nil {
		if !slices.Equal(memberAddresses(fromDisk(m.disk.Proposed)), m.core) {
			return nil, nil
		}
		return fromDisk(m.disk.Proposed), nil
	}
	if m.disk.Accepted != nil || m.obstacle() != "" {
		return nil, nil
	}
	f = &clusterpb.Founding{Cluster: random}
	for i, address := range m.core {
		server := m.disk.Server
		if address != m.self {
			server = m.heard[address].Server
		}
		f.Members = append(f.Members,
			&clusterpb.CoreMember{Address: address, Replica: uint64(i + 1), Server: server})
	}
	// The proposer accepts its own founding with the same write.
	return f, m.with(func(s *bootstrappb.State) { s.Proposed, s.Accepted = toDisk(f), toDisk(f) })
}

// obstacle describes what keeps the core from being formed; empty: nothing that this server can
// see.
func (m *machine) obstacle() string {
	if !m.canForm() {
		return fmt.Sprintf("none of %s has answered that it is a member of a core; and a new core has "+
			"1, 3 or 5 members, which are all in its --core list", strings.Join(m.core, ", "))
	}
	if f := fromDisk(m.disk.Accepted); f != nil && !slices.Equal(memberAddresses(f), m.core) {
		return fmt.Sprintf("%s has agreed to form a core of %s: %s; start all servers with "+
			"that list, or empty all their data directories (that core holds no data yet)", m.self,
			addresses(f), difference("this list", m.core, "that core", memberAddresses(f)))
	}
	var silent []string
	names := map[uint64]string{m.disk.Server: m.self}
	for _, address := range m.core {
		h := m.heard[address]
		switch {
		case address == m.self:
			continue
		case h == nil:
			silent = append(silent, address)
			continue
		case !slices.Equal(h.Core, m.core):
			return m.listsDiffer(address, h.Core)
		case names[h.Server] != "":
			return fmt.Sprintf("%s and %s are one server, or copies of one data directory: give "+
				"every address a server and a directory of its own",
				names[h.Server], address)
		}
		names[h.Server] = address
	}
	if len(silent) > 0 {
		return fmt.Sprintf("it waits for %s; all of %s have to run at the same time for that",
			strings.Join(silent, ", "), strings.Join(m.core, ", "))
	}
	if f := fromDisk(m.disk.Accepted); f != nil {
		for _, member := range f.Members {
			if h := m.heard[member.Address]; h != nil && h.Server != member.Server {
				return fmt.Sprintf("the forming of cluster %016x cannot be finished: "+
					"the data directory of %s was wiped or replaced meanwhile. The cluster holds "+
					"no data yet: empty the data directories of %s and start again", f.Cluster,
					member.Address, strings.Join(m.core, ", "))
			}
		}
	}
	for _, address := range m.core {
		if h := m.heard[address]; h != nil && h.Accepted != nil &&
			!equal(h.Accepted, fromDisk(m.disk.Accepted)) &&
			(m.disk.Accepted != nil || !m.names(h.Accepted)) {
			return fmt.Sprintf("%s has accepted the forming of cluster %016x, of which this "+
				"server is not a part: a data directory was wiped or replaced meanwhile. That "+
				"cluster holds no data yet: empty the data directories of %s and start again",
				address, h.Accepted.Cluster, strings.Join(m.core, ", "))
		}
	}
	return ""
}

func (m *machine) listsDiffer(name string, list []string) string {
	return fmt.Sprintf(
		"the --core lists of %s and %s differ: %s; start all servers with the same list",
		m.self, name, difference(m.self, m.core, name, list))
}

// names reports whether a founding names this server, by address and by directory.
func (m *machine) names(f *clusterpb.Founding) bool {
	return slices.ContainsFunc(f.GetMembers(), func(c *clusterpb.CoreMember) bool {
		return c.Address == m.self && c.Server == m.disk.Server
	})
}

// with returns a changed copy of the state on disk.
func (m *machine) with(change func(*bootstrappb.State)) *bootstrappb.State {
	next := &bootstrappb.State{
		Server: m.disk.Server, Address: m.self,
		Proposed: m.disk.Proposed, Accepted: m.disk.Accepted, Founded: m.disk.Founded,
		Joined: m.disk.Joined, Replica: m.disk.Replica, Removed: m.disk.Removed,
	}
	change(next)
	return next
}

// adopt is called when a state is on disk.
func (m *machine) adopt(next *bootstrappb.State) { m.disk = next }

func validate(f *clusterpb.Founding) error {
	if f.GetCluster() == 0 || len(f.GetMembers()) == 0 {
		return fmt.Errorf("the founding has no cluster id or no members")
	}
	for i, m := range f.Members {
		if m.GetAddress() == "" || m.GetReplica() != uint64(i+1) || m.GetServer() == 0 ||
			(i > 0 && f.Members[i-1].Address >= m.Address) {
			return fmt.Errorf("member %d of the founding is malformed", i+1)
		}
	}
	return nil
}

func equal(a, b *clusterpb.Founding) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cluster == b.Cluster &&
		slices.EqualFunc(a.Members, b.Members, func(x, y *clusterpb.CoreMember) bool {
			return x.Address == y.Address && x.Replica == y.Replica && x.Server == y.Server
		})
}

func toDisk(f *clusterpb.Founding) *bootstrappb.Founding {
	out := &bootstrappb.Founding{Cluster: f.Cluster}
	for _, m := range f.Members {
		out.Members = append(out.Members,
			&bootstrappb.Member{Address: m.Address, Replica: m.Replica, Server: m.Server})
	}
	return out
}

func fromDisk(f *bootstrappb.Founding) *clusterpb.Founding {
	if f == nil {
		return nil
	}
	out := &clusterpb.Founding{Cluster: f.Cluster}
	for _, m := range f.Members {
		out.Members = append(out.Members,
			&clusterpb.CoreMember{Address: m.Address, Replica: m.Replica, Server: m.Server})
	}
	return out
}
