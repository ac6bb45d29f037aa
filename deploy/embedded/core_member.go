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

// These are the states of a server with the role of a core member: it looks for a core, or forms
// one; it offers itself to a core until it is added; it is a member; it was a member, and was
// removed.
const (
	lookingForCore int32 = iota
	offeredToCore
	memberOfCore
	removedFromCore
)

// coreMember is a server's membership of the consistent core, from the search for a core until the
// server stops or is removed. Every server has a coreMember. Only a server with the role of a core
// member runs it.
type coreMember struct {
	*environment
	// bootstrap is the directory's record of the membership. It is nil without the role.
	bootstrap *bootstrap.Member
	// members knows the addresses of the core's members.
	members coreaddr.Book
	// wasMember is set if the directory was that of a member of the core when the server started.
	wasMember bool
	// state is one of the states above.
	state atomic.Int32
	// part is the running member. It is nil while the member does not run.
	part atomic.Pointer[corePart]
	// broken is the error because of which the member does not open and is left alone.
	// coordinationBroken is the same for the member's part of the coordination store. They are nil
	// without an error.
	broken, coordinationBroken atomic.Pointer[error]

	// etcd serves the etcd API from the coordination store.
	etcd etcdServer
	// backups is the server's part in backups. A data node has one too.
	backups *backup.Part
	// notReady lists the reasons why the server is not ready. diskSlow reports whether the data node's
	// disk is slow.
	notReady func() []string
	diskSlow func() bool
}

// etcdServer serves the etcd API.
type etcdServer interface {
	// serve serves the etcd API from a member's part of the coordination store. g is the group of the
	// store.
	serve(p *corePart, g *host.Group) error
	// End makes other members answer from now on.
	End()
}

// chooseRoles adds the role of a core member to a server without given roles whose directory is
// that of a core member.
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

// seeds returns the addresses at which the core is searched.
func (c *coreMember) seeds() []string {
	list := slices.Clone(c.config.Core)
	id := c.directory.Identity()
	known := id.Members()
	if c.wasMember && c.config.has(RoleCore) {
		known = append(known, c.config.Advertise) // this member may have moved, and may be the only one
	}
	for _, address := range known {
		if !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	return list
}

// learnedMembers stores the members of the core on disk.
func (c *coreMember) learnedMembers() {
	if err := c.directory.KnowsMembers(c.core.Core()); err != nil {
		c.config.Logger.Warn("the addresses of the core's members could not be kept", "error", err)
	}
}

// belongs reports whether the directory is that of a member of the core.
func (c *coreMember) belongs() bool { return c.bootstrap != nil && c.bootstrap.Membership() != nil }

// server returns the running member, or nil.
func (c *coreMember) server() *server.Server {
	if p := c.part.Load(); p != nil {
		return p.server
	}
	return nil
}

// coordination returns this member's part of the coordination store, or nil if it is not open.
func (c *coreMember) coordination() *store.Store {
	if p := c.part.Load(); p != nil {
		return p.coordination.Store()
	}
	return nil
}

// etcdServices returns this member's services of the etcd API, or nil if there are none.
func (c *coreMember) etcdServices() *etcdapi.Services {
	if p := c.part.Load(); p != nil {
		return p.coordination.services.Load()
	}
	return nil
}

// group returns a Raft group of this member, or nil if it is not open.
func (c *coreMember) group(id keys.PartitionID) *host.Group {
	if p := c.part.Load(); p != nil {
		return p.host.Group(id)
	}
	return nil
}

// judges is the function for clusterauth.Judge.Member.
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

// coordinationFailed stops this member's part of the coordination store until the server starts
// again. The core's own group, and a data node, continue: the metadata does not depend on the data
// that clients store in the coordination store.
func (c *coreMember) coordinationFailed(err error) {
	c.coordinationBroken.CompareAndSwap(nil, &err)
	c.etcd.End()
	if s := c.coordination(); s != nil {
		s.EndWatches() // they would wait for ever; their clients go on with another member
	}
	c.config.Logger.Error("THIS MEMBER'S PART OF THE COORDINATION STORE FAILED and is left alone; "+
		"the core goes on", "error", err)
}

// coordinationErr returns the error with which this server's part of the coordination store failed,
// or nil.
func (c *coreMember) coordinationErr() error {
	if p := c.coordinationBroken.Load(); p != nil {
		return *p
	}
	return nil
}

// addresses lists the known addresses of the core's members.
func (c *coreMember) addresses() []string {
	return distinct(slices.Concat(c.members.All(), c.core.Core()))
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// backupMember returns this member in the form that package backup needs.
func (c *coreMember) backupMember(p *corePart) backup.Member {
	m := backup.Member{Server: c.server, Coordination: p.coordination.Store,
		Services: p.coordination.services.Load, None: c.config.withoutCoordination}
	if c.config.FS == vfs.Default {
		m.Directory = c.directory.Sub("core")
	}
	return m
}
