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

// Users guard the data of keyspaces once authentication is enabled. Each server keeps with its
// identity whether it has to follow users and roles, tells the core's leader so with heartbeats and
// announcements, and learns from the answers. From that on it takes no process for a server that
// does not prove it, but for processes on its own machine, if it listens on that alone.

// authFollower is the part of a server that follows users and roles, and says which callers have
// proved to be servers. Safe for concurrent use.
type authFollower struct {
	*authcache.Cache
	peers *authn.PeerPolicy
	// local says that only processes on this machine, or of a test, reach the server.
	local bool
	// given, if not nil, judges clients instead of Guard.
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
			"prove that they are some, and none could prove it to this one at %s (with --insecure as well): "+
			"start it with what the other servers have, --secret-file, or --tls-ca or --tls-peer-ca",
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

// judge is what clients of keyspaces are judged by.
func (a *authFollower) judge() access.Guard {
	if a.given != nil {
		return a.given
	}
	return a.Cache
}

// changed is called when the core says whether the server has to follow users and roles.
func (a *authFollower) changed(m authcache.Flag) {
	a.closeDoor(m.On)
	a.wake()
}

// closeDoor has the server take no process for a server that does not prove it, or ends that.
// Processes of this machine, if only they reach it, need not prove what they cannot.
func (a *authFollower) closeDoor(closed bool) {
	if a.peers.Provable() || !a.local {
		a.peers.Close(closed)
	}
}

// provesServer says why a caller has not proved to be a server; nil if it has, or need not.
func (a *authFollower) provesServer(ctx context.Context) error {
	if !a.peers.Provable() && a.local {
		return nil
	}
	return a.peers.Proved(ctx)
}

// report is what this server tells the core's leader of itself.
func (a *authFollower) report() *clusterpb.GuardReport {
	r := a.Report()
	r.Closes = !a.peers.Open || a.peers.Provable() || a.local
	return r
}

// reporting is the core as a data node sees it. It adds what the server says of itself to each
// heartbeat.
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
