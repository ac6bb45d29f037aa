package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/authcache"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// announceEvery is the interval at which a server announces itself to the core. greetEvery is the
	// interval at which members that know no leader send each other a hello.
	announceEvery = 2 * time.Second
	greetEvery    = time.Second
	// announceTimeout limits one announcement. helloTimeout limits one hello.
	announceTimeout = 5 * time.Second
	helloTimeout    = 2 * time.Second
)

// openBootstrap opens the directory's record of its membership.
func (c *coreMember) openBootstrap() (err error) {
	if err := datadir.MakeDir(c.config.FS, c.directory.Sub("core")); err != nil {
		return err
	}
	id := c.directory.Identity()
	c.bootstrap, err = bootstrap.Open(bootstrap.Config{
		Disk: c.bootstrapDisk(), Self: c.config.Advertise, Core: c.config.Core,
		// A directory that belongs to a cluster cannot form another one.
		Server: uint64(id.Server), Late: id.Cluster != 0,
		Coordination: !c.config.withoutCoordination,
		Peers:        bootstrap.GRPCPeers{Conn: c.dialer.Conn}, Heard: c.members.Hear,
		Say: c.sayVersion, Random: randomReader(c.config.Random), Logger: c.config.Logger,
	})
	return err
}

// sayVersion adds what this version supports to the server's report about itself.
func (c *coreMember) sayVersion(h *clusterpb.BootstrapHello) {
	h.Levels = c.level.Report()
	if c.config.olderCommands {
		return
	}
	c.server().Membership().Versions().Say(h)
}

// run forms the core, or waits until the server is added to it. Then it runs the member, and stops
// it when it is removed.
func (c *coreMember) run(ctx context.Context) error {
	again := c.bootstrap.Membership() != nil
	m, err := c.bootstrap.Run(ctx)
	if errors.Is(err, bootstrap.ErrNotMember) {
		if m, err = c.offer(ctx); err == nil && m == nil {
			err = bootstrap.ErrRemoved
		}
	}
	if errors.Is(err, bootstrap.ErrRemoved) {
		c.state.Store(removedFromCore)
		c.config.Logger.Warn("NOT A MEMBER OF THE CORE", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.mayMove(ctx); err != nil {
		return err
	}
	p, err := c.open(m)
	if errors.Is(err, group.ErrImplausible) {
		// A restart would not help, and the server may have a node that serves. So the server continues.
		c.config.Logger.Error("THE CONSISTENT CORE'S MEMBER DOES NOT OPEN and is left alone",
			"error", err)
		c.broken.Store(&err)
		return nil
	}
	if err != nil {
		return err
	}
	c.part.Store(p)
	c.state.Store(memberOfCore)
	if again {
		c.config.Logger.Info("takes part in the core again", "cluster",
			datadir.HexID(m.Cluster), "member",
			m.Replica)
	}
	return c.beMember(ctx, p)
}

// mayMove checks that a member with a new address does not also run at its old address: a copied
// directory must not vote twice.
func (c *coreMember) mayMove(ctx context.Context) error {
	old := c.bootstrap.Moved()
	if old == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, helloTimeout)
	h, err := otherServers{c}.Hello(limited, old)
	cancel()
	if err == nil && h.Server == c.bootstrap.Server() && h.Address == old {
		return fmt.Errorf("%w: the member of the core with this directory runs at %s; a copy of it "+
			"cannot run at %s as well: stop that server first, or start with an empty directory",
			datadir.ErrUnusable, old, c.config.Advertise)
	}
	c.config.Logger.Info("this member of the core has moved", "from", old, "to", c.config.Advertise)
	return c.bootstrap.Settle()
}

// announcement returns this server's report about itself.
func (c *coreMember) announcement() *clusterpb.AnnounceRequest {
	id := c.directory.Identity()
	return &clusterpb.AnnounceRequest{Cluster: uint64(id.Cluster), Server: uint64(id.Server),
		Address: c.config.Advertise, Version: c.config.Version, Guard: c.auth.report(),
		Levels: c.level.Report()}
}

// announce announces this server to the leader of the core, and processes the answer. refused is
// set if the core refuses the server permanently, because its program does not support the level of
// the cluster.
func (c *coreMember) announce(
	ctx context.Context,
) (r *clusterpb.AnnounceResponse, refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	r, err = c.core.Announce(ctx, c.announcement())
	c.auth.Learn(r.GetGuard())
	c.level.Learn(r.GetLevel())
	if upgrade.Refused(err) {
		return nil, true, refusedLevel(err)
	}
	return r, false, err
}

// refusedLevel returns the error of a server whose program the core has refused.
func refusedLevel(err error) error {
	return fmt.Errorf("the core refuses this server: %s", wire.Reason(err))
}

// offer offers this server to the core until it is added. It returns nil if the server was a member
// and was removed.
func (c *coreMember) offer(ctx context.Context) (*bootstrap.Membership, error) {
	c.state.Store(offeredToCore)
	c.config.Logger.Info("offers itself as a member of the core; it becomes one by `tidemark core "+
		"add`, or in place of another by `tidemark core replace`", "address", c.config.Advertise)
	told := ""
	for {
		r, refused, err := c.announce(ctx)
		switch {
		case refused:
			return nil, err
		case err == nil && r.Removed:
			return nil, c.bootstrap.Leave()
		case err == nil && r.Replica != 0:
			if err := c.directory.Join(r.Cluster); err != nil {
				return nil, err
			}
			c.members.Tell(r.Members)
			m, err := c.bootstrap.Join(r.Cluster, r.Replica, r.Members.GetMembers())
			if err == nil {
				c.config.Logger.Info("was added to the core", "member", m.Replica, "cluster",
					datadir.HexID(m.Cluster))
			}
			return m, err
		case err != nil && ctx.Err() == nil && err.Error() != told:
			if !errors.Is(err, coreclient.ErrUnavailable) {
				c.config.Logger.Warn("the core does not take this server's offer", "error", wire.Reason(err))
			}
			told = err.Error()
		}
		if err := backoff.Sleep(ctx, announceEvery); err != nil {
			return nil, err
		}
	}
}

// beMember reports this member's address to the core, and returns when the server is no longer a
// member.
func (c *coreMember) beMember(ctx context.Context, p *corePart) error {
	// said is the last announcement, and announced is its time.
	type marks struct {
		guard  authcache.Flag
		levels releasemark.Levels
	}
	var announced time.Time
	var said marks
	told := ""
	for backoff.Sleep(ctx, greetEvery) == nil {
		if p.server.LeaderAddress() == "" {
			c.bootstrap.Greet(ctx, distinct(append(c.members.All(), c.seeds()...)))
		}
		now := marks{c.auth.Flag(), c.level.Levels()}
		if now == said && time.Since(announced) < announceEvery {
			continue
		}
		said = now
		r, refused, err := c.announce(ctx)
		announced = time.Now()
		switch {
		case refused:
			return err
		case err == nil && r.Removed:
			return c.leaveCore(p)
		case err == nil:
			c.members.Tell(r.Members)
			if r.Leaving {
				p.server.Membership().LeaveCoordination()
			}
			told = ""
		case ctx.Err() == nil && !errors.Is(err, coreclient.ErrUnavailable) && err.Error() != told:
			told = err.Error()
			c.config.Logger.Warn("the core does not know this member as it is", "error", wire.Reason(err))
		}
	}
	return nil
}

// leaveCore permanently stops the member of a server that was removed from the core. A data node on
// the server continues.
func (c *coreMember) leaveCore(p *corePart) error {
	if err := c.bootstrap.Leave(); err != nil {
		return err
	}
	c.state.Store(removedFromCore)
	c.etcd.End()
	c.part.Store(nil)
	err := p.close()
	c.config.Logger.Warn("WAS REMOVED FROM THE CORE; its member here has stopped for good",
		"data node", c.config.has(RoleNode))
	return err
}
