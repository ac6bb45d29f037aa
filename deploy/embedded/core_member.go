package embedded

import (
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/backup"
	"github.com/tidemarkdb/tidemark/deploy/embedded/coreaddr"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The states of a server with the role of a core member: it looks for a core, or forms one; offers
// itself to a core until it is added; is a member; or was a member, and was removed.
const (
	lookingForCore int32 = iota
	offeredToCore
	memberOfCore
	removedFromCore
)

// coreMember is a server's membership of the consistent core, from the search for a core until the
// server ends or is removed. Every server has a coreMember; only a server with the role of a core
// member runs it.
type coreMember struct {
	*environment
	// bootstrap is what the directory has of the membership; nil without the role.
	bootstrap *bootstrap.Member
	// members are where the core's members are.
	members coreaddr.Book
	// wasMember: the directory was that of a member of the core when the server started.
	wasMember bool
	// state is one of the states above.
	state atomic.Int32
	// part is nil unless the member runs.
	part atomic.Pointer[corePart]
	// broken is why the member does not open and is left alone, and coordinationBroken why its part
	// of the coordination store is; nil if they are not.
	broken, coordinationBroken atomic.Pointer[error]

	// etcd serves the etcd API from the coordination store.
	etcd etcdServer
	// backups is the server's part in backups, also as a data node.
	backups *backup.Part
	// notReady lists why the server is not ready, and diskSlow says that the data node's disk is slow.
	notReady func() []string
	diskSlow func() bool
}

// etcdServer serves the etcd API.
type etcdServer interface {
	// serve answers from a member's part of the coordination store, whose group is g.
	serve(p *corePart, g *host.Group) error
	// End has other members answer.
	End()
}

// chooseRoles adds the role of a core member to a server that was given no roles and whose
// directory is one.
func (c *coreMember) chooseRoles() error {
	state, err := c.bootstrapDisk().Load()
	if err != nil {
		return err
	}
	c.wasMember = !state.GetRemoved() && (state.GetFounded() || state.GetJoined() != nil)
	if c.config.anyRole && !c.config.has(RoleCore) && !state.GetRemoved() &&
		(c.wasMember || c.directory.Promised(RoleCore)) {
		c.config.Roles = append(slices.Clone(c.config.Roles), RoleCore)
	}
	return nil
}

func (c *coreMember) bootstrapDisk() bootstrap.FileDisk {
	return bootstrap.FileDisk{FS: c.config.FS, Dir: c.directory.Sub("core")}
}

// seeds are the addresses at which the core is looked for.
func (c *coreMember) seeds() []string {
	list := slices.Clone(c.config.Core)
	id := c.directory.Identity()
	known := id.Members()
	if c.wasMember && c.config.has(RoleCore) {
		known = append(known, c.config.Advertise) // it may have moved, and be the only one
	}
	for _, address := range known {
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list
}

// learnedMembers keeps on disk which members the core has.
func (c *coreMember) learnedMembers() {
	if err := c.directory.KnowsMembers(c.core.Core()); err != nil {
		c.config.Logger.Warn("the addresses of the core's members could not be kept", "error", err)
	}
}

// belongs says that the directory is a member of the core.
func (c *coreMember) belongs() bool { return c.bootstrap != nil && c.bootstrap.Membership() != nil }

// server returns the member; nil while none runs.
func (c *coreMember) server() *server.Server {
	if p := c.part.Load(); p != nil {
		return p.server
	}
	return nil
}

// coordination returns this member's part of the coordination store; nil if it is not open.
func (c *coreMember) coordination() *store.Store {
	if p := c.part.Load(); p != nil {
		return p.coordination.Store()
	}
	return nil
}

// etcdServices returns the services of the etcd API of this member; nil while there are none.
func (c *coreMember) etcdServices() *etcdapi.Services {
	if p := c.part.Load(); p != nil {
		return p.coordination.services.Load()
	}
	return nil
}

// group returns a group of this member; nil if it is not open.
func (c *coreMember) group(id keys.PartitionID) *host.Group {
	if p := c.part.Load(); p != nil {
		return p.host.Group(id)
	}
	return nil
}

// judges is clusterauth.Judge.Member.
func (c *coreMember) judges() (*server.Server, *etcdapi.Services, error) {
	p := c.part.Load()
	if p == nil {
		return nil, nil, nil
	}
	if services := p.coordination.services.Load(); services != nil {
		return p.server, services, nil
	}
	founding, err := membership.CoordinationFounding(p.store)
	switch {
	case err != nil:
		return p.server, nil, status.Errorf(codes.Unavailable,
			"whether authentication is enabled is not known: %v", err)
	case founding != nil && !c.config.withoutCoordination:
		return p.server, nil, status.Error(codes.Unavailable, "whether authentication is enabled is not "+
			"known yet: this server's part of the coordination store is not open")
	}
	return p.server, nil, nil
}

// coordinationFailed leaves this member's part of the coordination store alone, until the server
// starts again. The core's own group, and a data node, go on: whatever clients have brought into
// the coordination store, the metadata does not depend on it.
func (c *coreMember) coordinationFailed(err error) {
	c.coordinationBroken.CompareAndSwap(nil, &err)
	c.etcd.End()
	c.config.Logger.Error("THIS MEMBER'S PART OF THE COORDINATION STORE FAILED and is left alone; "+
		"the core goes on", "error", err)
}

// coordinationErr returns why this server's part of the coordination store failed; nil if it has
// not.
func (c *coreMember) coordinationErr() error {
	if p := c.coordinationBroken.Load(); p != nil {
		return *p
	}
	return nil
}

// addresses lists the addresses of the core's members that this server knows.
func (c *coreMember) addresses() []string {
	return distinct(slices.Concat(c.members.All(), c.core.Core()))
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// backupMember is this member as backups are made by it.
func (c *coreMember) backupMember(p *corePart) backup.Member {
	m := backup.Member{Server: c.server, Coordination: p.coordination.Store,
		Services: p.coordination.services.Load, None: c.config.withoutCoordination}
	if c.config.FS == vfs.Default {
		m.Directory = c.directory.Sub("core")
	}
	return m
}
