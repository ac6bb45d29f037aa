package embedded

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/authcache"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// While authentication is enabled, users and roles protect the data of keyspaces. Each server
// stores beside its identity whether it must follow users and roles. It reports that to the core's
// leader with heartbeats and announcements, and learns of changes from the answers. While it must
// follow them, it accepts another process as a server only if the process proves to be one. The
// exception is a server that listens only on its own machine: it accepts processes of that machine
// without a proof.

// authFollower is the part of a server that follows users and roles, and decides which callers have
// proved to be servers. Safe for concurrent use.
type authFollower struct {
	*authcache.Cache
	peers *authn.PeerPolicy
	// local is set if only processes on this machine, or of a test, can reach the server.
	local bool
	// given, if not nil, checks the rights of clients instead of the Cache.
	given access.Guard
	// wake makes the node send a heartbeat. The core waits for the heartbeat that reports a change of
	// the mark.
	wake func()
}

// openAuthFollower opens the part of a server that follows users and roles.
func openAuthFollower(c *ServerConfig, directory *datadir.Directory, core *coreclient.Client,
	peers *authn.PeerPolicy, wake func()) (_ *authFollower, err error) {
	a := &authFollower{peers: peers, given: c.Guard, wake: wake,
		local: c.onOwnNetwork() || loopback(c.Listen)}
	id := directory.Identity()
	mark := authcache.Flag{Version: id.GuardVersion, On: id.Guards}
	if mark.On && !a.peers.Provable() && !a.local {
		return nil, fmt.Errorf("authentication is enabled in the cluster of %s, so servers have to "+
			"prove that they are servers, and no server can prove it to this one at %s, not even with "+
			"--insecure: start it with what the other servers have, --secret-file, or --tls-ca or --tls-peer-ca",
			c.Dir, c.Listen)
	}
	a.Cache, err = authcache.New(authcache.Config{Source: core, Mark: mark, Save: directory.SetGuards,
		Data: c.has(RoleNode), Changed: a.changed, Monotonic: c.Monotonic,
		Logger: c.Logger, Registerer: c.Registry})
	if err != nil {
		return nil, err
	}
	a.closeDoor(mark.On)
	return a, nil
}

// judge returns the guard that checks the rights of clients of keyspaces.
func (a *authFollower) judge() access.Guard {
	if a.given != nil {
		return a.given
	}
	return a.Cache
}

// changed is called when the core changes whether the server must follow users and roles.
func (a *authFollower) changed(m authcache.Flag) {
	a.closeDoor(m.On)
	a.wake()
}

// closeDoor turns the requirement that servers prove to be servers on or off. It is not turned on
// if only processes of this machine can reach the server and there is nothing to prove it with.
func (a *authFollower) closeDoor(closed bool) {
	if a.peers.Provable() || !a.local {
		a.peers.Close(closed)
	}
}

// provesServer returns an error if a caller has not proved to be a server, and has to.
func (a *authFollower) provesServer(ctx context.Context) error {
	if !a.peers.Provable() && a.local {
		return nil
	}
	return a.peers.Proved(ctx)
}

// report returns what this server reports about itself to the core's leader.
func (a *authFollower) report() *clusterpb.GuardReport {
	r := a.Report()
	r.Closes = !a.peers.Open || a.peers.Provable() || a.local
	return r
}

// reporting is the core from the point of view of a data node. It adds the server's report about
// itself to each heartbeat.
type reporting struct {
	*coreclient.Client
	auth  *authFollower
	level *releasemark.Mark
	// failed ends the server.
	failed func(error)
}

// Heartbeat implements node.Metadata.
func (c reporting) Heartbeat(
	ctx context.Context, r *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	r.Guard, r.Levels = c.auth.report(), c.level.Report()
	response, err := c.Client.Heartbeat(ctx, r)
	c.auth.Learn(response.GetGuard())
	c.level.Learn(response.GetLevel())
	if upgrade.Refused(err) {
		c.failed(refusedLevel(err))
	}
	return response, err
}
