package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// What a server is to the core, beside a data node: it looks for one, or forms it; offers itself to
// one that is there, until it is added; is a member; or was one, and was removed.
const (
	coreLooking int32 = iota
	coreOffering
	coreMember
	coreRemoved
)

const (
	// announceEvery is how often a server tells the core of itself, greetEvery how often members that
	// know of no leader say hello to one another.
	announceEvery = 2 * time.Second
	greetEvery    = time.Second
	// announceTimeout bounds one announcement, helloTimeout a hello.
	announceTimeout = 5 * time.Second
	helloTimeout    = 2 * time.Second
)

// chooseRoles adds the role of a core member to a server that was given no roles and whose
// directory is one.
func (s *Server) chooseRoles() error {
	state, err := s.bootstrapDisk().Load()
	if err != nil {
		return err
	}
	s.wasMember = !state.GetRemoved() && (state.GetFounded() || state.GetJoined() != nil)
	if s.config.anyRole && !s.config.has(RoleCore) && !state.GetRemoved() &&
		(s.wasMember || s.directory.Promised(RoleCore)) {
		s.config.Roles = append(slices.Clone(s.config.Roles), RoleCore)
	}
	return nil
}

func (s *Server) bootstrapDisk() bootstrap.FileDisk {
	return bootstrap.FileDisk{FS: s.config.FS, Dir: s.directory.Sub("core")}
}

// seeds are the addresses at which the core is looked for.
func (s *Server) seeds() []string {
	list := slices.Clone(s.config.Core)
	id := s.directory.Identity()
	known := id.Members()
	if s.wasMember && s.config.has(RoleCore) {
		known = append(known, s.config.Advertise) // it may have moved, and be the only one
	}
	for _, address := range known {
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list
}

// learnedMembers keeps on disk which members the core has.
func (s *Server) learnedMembers() {
	if err := s.directory.KnowsMembers(s.core.Core()); err != nil {
		s.config.Logger.Warn("the addresses of the core's members could not be kept", "error", err)
	}
}

// openBootstrap opens what the directory has of its membership.
func (s *Server) openBootstrap() (err error) {
	if err := datadir.MakeDir(s.config.FS, s.directory.Sub("core")); err != nil {
		return err
	}
	id := s.directory.Identity()
	s.bootstrap, err = bootstrap.Open(bootstrap.Config{
		Disk: s.bootstrapDisk(), Self: s.config.Advertise, Core: s.config.Core,
		// A directory that belongs to a cluster does not form another one.
		Server: uint64(id.Server), Late: id.Cluster != 0,
		Coordination: !s.config.withoutCoordination,
		Peers:        bootstrap.GRPCPeers{Conn: s.dialer.Conn}, Heard: s.members.Hear,
		Say: s.sayVersion, Random: randomReader(s.config.Random), Logger: s.config.Logger,
	})
	return err
}

// versionKnown is the id of this server as one whose version need not be asked for.
func (s *Server) versionKnown() uint64 {
	if s.config.olderCommands {
		return 0
	}
	return uint64(s.directory.Identity().Server)
}

// sayVersion adds what this version knows to what this server says of itself.
func (s *Server) sayVersion(h *clusterpb.BootstrapHello) {
	if s.config.olderCommands {
		return
	}
	s.parts.Lock()
	core := s.parts.core
	s.parts.Unlock()
	if core != nil {
		core.server.Membership().SayVersion(h)
	} else {
		(*server.Server)(nil).Membership().SayVersion(h)
	}
}

// helloTo asks the server at an address which one it is.
func (s *Server) helloTo(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
	return bootstrap.GRPCPeers{Conn: s.dialer.Conn}.Hello(ctx, address, &clusterpb.BootstrapHello{})
}

// informOf tells the server at an address which members the core has.
func (s *Server) informOf(ctx context.Context, address string, m *clusterpb.CoreMembers) error {
	conn, err := s.dialer.Conn(address)
	if err == nil {
		_, err = clusterpb.NewCoreClient(conn).Inform(ctx, m)
	}
	return err
}

// checkMember asks the member of the core at an address how it is.
func (s *Server) checkMember(
	ctx context.Context, address string,
) (*clusterpb.MemberHealth, error) {
	conn, err := s.dialer.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewCoreClient(conn).Check(ctx,
		&clusterpb.CheckRequest{Cluster: s.cluster.Load()})
}

// wakeNode tells the node at an address that there are orders for it.
func (s *Server) wakeNode(ctx context.Context, address string, node keys.NodeID) error {
	conn, err := s.dialer.Conn(address)
	if err == nil {
		_, err = clusterpb.NewCoreClient(conn).Wake(ctx, &clusterpb.WakeRequest{
			Cluster: s.cluster.Load(), Node: uint64(node)})
	}
	return err
}

// beCore is this server's part in the core, from its beginning until the server ends: it forms it,
// or waits until it is added to it, runs its member, and stops that when it is removed.
func (s *Server) beCore(ctx context.Context) error {
	again := s.bootstrap.Membership() != nil
	m, err := s.bootstrap.Run(ctx)
	if errors.Is(err, bootstrap.ErrNotMember) {
		if m, err = s.offer(ctx); err == nil && m == nil {
			err = bootstrap.ErrRemoved
		}
	}
	if errors.Is(err, bootstrap.ErrRemoved) {
		s.coreState.Store(coreRemoved)
		s.config.Logger.Warn("NOT A MEMBER OF THE CORE", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.mayMove(ctx); err != nil {
		return err
	}
	p, err := s.startCore(m)
	if errors.Is(err, group.ErrImplausible) {
		// To start again would not change it, and the server may hold a node that serves.
		s.config.Logger.Error("THE CONSISTENT CORE'S MEMBER DOES NOT OPEN and is left alone",
			"error", err)
		s.coreBroken.Store(&err)
		return nil
	}
	if err != nil {
		return err
	}
	s.parts.Lock()
	s.parts.core = p
	s.parts.Unlock()
	s.services.setCore(p.server)
	s.coreState.Store(coreMember)
	if again {
		s.config.Logger.Info("takes part in the core again", "cluster",
			datadir.HexID(m.Cluster), "member",
			m.Replica)
	}
	return s.beMember(ctx, p)
}

// mayMove sees to it that a member whose address is new is not at the old one as well: a directory
// that was copied must not vote twice.
func (s *Server) mayMove(ctx context.Context) error {
	old := s.bootstrap.Moved()
	if old == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, helloTimeout)
	h, err := s.helloTo(limited, old)
	cancel()
	if err == nil && h.Server == s.bootstrap.Server() && h.Address == old {
		return fmt.Errorf("%w: the member of the core with this directory runs at %s; a copy of it "+
			"cannot run at %s as well: stop that server first, or start with an empty directory",
			datadir.ErrUnusable, old, s.config.Advertise)
	}
	s.config.Logger.Info("this member of the core has moved", "from", old, "to", s.config.Advertise)
	return s.bootstrap.Settle()
}

// announcement is what this server says of itself.
func (s *Server) announcement() *clusterpb.AnnounceRequest {
	id := s.directory.Identity()
	return &clusterpb.AnnounceRequest{Cluster: uint64(id.Cluster), Server: uint64(id.Server),
		Address: s.config.Advertise, Version: s.config.Version, Guard: s.auth.report()}
}

// offer offers this server to the core, until it is added; nil if it was a member and was removed.
func (s *Server) offer(ctx context.Context) (*bootstrap.Membership, error) {
	s.coreState.Store(coreOffering)
	s.config.Logger.Info("offers itself as a member of the core; it becomes one by `tidemark core "+
		"add`, or in place of another by `tidemark core replace`", "address", s.config.Advertise)
	told := ""
	for {
		limited, cancel := context.WithTimeout(ctx, announceTimeout)
		r, err := s.core.Announce(limited, s.announcement())
		cancel()
		s.auth.Learn(r.GetGuard())
		switch {
		case err == nil && r.Removed:
			return nil, s.bootstrap.Leave()
		case err == nil && r.Replica != 0:
			if err := s.directory.Join(r.Cluster); err != nil {
				return nil, err
			}
			s.members.Tell(r.Members)
			m, err := s.bootstrap.Join(r.Cluster, r.Replica, r.Members.GetMembers())
			if err == nil {
				s.config.Logger.Info("was added to the core", "member", m.Replica, "cluster",
					datadir.HexID(m.Cluster))
			}
			return m, err
		case err != nil && ctx.Err() == nil && err.Error() != told:
			if !errors.Is(err, coreclient.ErrUnavailable) {
				s.config.Logger.Warn("the core does not take this server's offer", "error", wire.Reason(err))
			}
			told = err.Error()
		}
		if !pause(ctx, announceEvery) {
			return nil, ctx.Err()
		}
	}
}

// beMember tells the core where its member here is, and learns when it is none any more.
func (s *Server) beMember(ctx context.Context, p *corePart) error {
	var announced time.Time
	mark := s.auth.Mark() // as it was announced
	told := ""
	for pause(ctx, greetEvery) {
		if p.server.LeaderAddress() == "" {
			s.bootstrap.Greet(ctx, distinct(append(s.members.All(), s.seeds()...)))
		}
		if s.auth.Mark() == mark && time.Since(announced) < announceEvery {
			continue
		}
		mark = s.auth.Mark()
		limited, cancel := context.WithTimeout(ctx, announceTimeout)
		r, err := s.core.Announce(limited, s.announcement())
		cancel()
		announced = time.Now()
		s.auth.Learn(r.GetGuard())
		switch {
		case err == nil && r.Removed:
			return s.leaveCore(p)
		case err == nil:
			s.members.Tell(r.Members)
			if r.Leaving {
				p.server.Membership().LeaveCoordination()
			}
			told = ""
		case ctx.Err() == nil && !errors.Is(err, coreclient.ErrUnavailable) && err.Error() != told:
			told = err.Error()
			s.config.Logger.Warn("the core does not know this member as it is", "error", wire.Reason(err))
		}
	}
	return nil
}

// leaveCore stops the member of a server that was removed from the core, for good. A data node goes
// on.
func (s *Server) leaveCore(p *corePart) error {
	if err := s.bootstrap.Leave(); err != nil {
		return err
	}
	s.coreState.Store(coreRemoved)
	s.services.setCore(nil)
	s.services.etcd.end()
	s.parts.Lock()
	s.parts.core = nil
	s.parts.Unlock()
	err := p.close()
	s.config.Logger.Warn("WAS REMOVED FROM THE CORE; its member here has stopped for good",
		"data node", s.config.has(RoleNode))
	return err
}

// pause waits; false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// CoreMember says whether this server runs a member of the core.
func (s *Server) CoreMember() bool {
	s.parts.Lock()
	defer s.parts.Unlock()
	return s.parts.core != nil
}

// CoreLeader is where the core's leader is, as far as the member of the core on this server knows;
// empty if it does not, or if there is none.
func (s *Server) CoreLeader() string {
	s.parts.Lock()
	core := s.parts.core
	s.parts.Unlock()
	if core == nil {
		return ""
	}
	return core.server.LeaderAddress()
}
