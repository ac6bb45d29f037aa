package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ErrRemoved says that this server was a member of the core and was removed.
var ErrRemoved = errors.New("this server was a member of the core and was removed; its id never " +
	"comes back: to have the machine in the core again, start with an empty directory")

// Membership says which member of which core a server is.
type Membership struct {
	Cluster uint64
	// Replica is its id.
	Replica uint64
	// Founding lists the members with which the core was founded, including this one; nil for a
	// member that was added later.
	Founding []*clusterpb.CoreMember
	// Known lists the members, as of when the server became one.
	Known []*clusterpb.CoreMember
}

// membership returns the membership on disk; nil if this server is not a member.
func (m *machine) membership() *Membership {
	switch {
	case m.disk.Removed:
		return nil
	case m.disk.Joined != nil:
		f := fromDisk(m.disk.Joined)
		return &Membership{Cluster: f.Cluster, Replica: m.disk.Replica, Known: f.Members}
	case m.disk.Founded:
		f := m.founded()
		for _, x := range f.Members {
			if x.Server == m.disk.Server {
				return &Membership{Cluster: f.Cluster, Replica: x.Replica, Founding: f.Members,
					Known: f.Members}
			}
		}
	}
	return nil
}

// MembershipOf returns the membership in a stored state; nil if the server is not a member.
func MembershipOf(state *bootstrappb.State) *Membership {
	if state == nil {
		return nil
	}
	return (&machine{disk: state}).membership()
}

// Membership returns this server's membership; nil if it is not a member.
func (m *Member) Membership() *Membership {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.machine.membership()
}

// Removed reports that this server was a member and was removed.
func (m *Member) Removed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.machine.disk.Removed
}

// Join stores on disk that this server, which offers itself, was added to a core as a member.
func (m *Member) Join(cluster, replica uint64, known []*clusterpb.CoreMember) (*Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	machine := m.mu.machine
	if !machine.offers() {
		return nil, fmt.Errorf("%w: a server that belongs to a core, or did, cannot be added to one",
			ErrRefused)
	}
	if cluster == 0 || replica == 0 {
		return nil, fmt.Errorf("%w: member %d of cluster %016x", ErrRefused, replica, cluster)
	}
	return m.keepMembershipLocked(func(s *bootstrappb.State) {
		s.Joined, s.Replica = toDisk(&clusterpb.Founding{Cluster: cluster, Members: known}), replica
	})
}

// Leave stores on disk that this server was removed from the core, for good.
func (m *Member) Leave() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.keepMembershipLocked(func(s *bootstrappb.State) { s.Removed = true })
	return err
}

// Moved returns the server's former address as a member, if its address has changed; else "".
func (m *Member) Moved() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := m.mu.machine.disk.Address; at != m.config.Self {
		return at
	}
	return ""
}

// Settle stores the present address on disk.
func (m *Member) Settle() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.keepMembershipLocked(func(*bootstrappb.State) {})
	return err
}

func (m *Member) keepMembershipLocked(change func(*bootstrappb.State)) (*Membership, error) {
	if m.mu.failed != nil {
		return nil, m.mu.failed
	}
	if !m.keepLocked(m.mu.machine.with(change)) {
		return nil, m.mu.failed
	}
	return m.mu.machine.membership(), nil
}

// Greet sends hellos to servers, so that they learn the addresses of members that have moved, and
// this server does by Config.Heard.
func (m *Member) Greet(ctx context.Context, addresses []string) {
	var others []string
	for _, address := range addresses {
		if address != m.config.Self {
			others = append(others, address)
		}
	}
	m.exchange(ctx, others,
		func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
			m.mu.Lock()
			hello := m.mu.machine.hello()
			m.mu.Unlock()
			return m.config.Peers.Hello(ctx, address, hello)
		})
}
