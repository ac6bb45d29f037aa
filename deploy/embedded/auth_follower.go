package embedded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/guard"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
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
	*guard.Guard
	peers *authn.PeerPolicy
	// local says that only processes on this machine, or of a test, reach the server.
	local bool
	// given, if not nil, judges clients instead of Guard.
	given access.Guard
	// wake makes the node send a heartbeat. The core waits for the heartbeat that reports a change of
	// the mark.
	wake func()
}

// openAuthFollower opens what judges clients. The directory, the core's client and the peers'
// policy are there.
func (s *Server) openAuthFollower(peers *authn.PeerPolicy) (err error) {
	a := &authFollower{peers: peers, given: s.config.Guard,
		local: s.config.onOwnNetwork() || loopback(s.config.Listen), wake: func() {
			if n := s.services.node.Load(); n != nil {
				n.Wake()
			}
		}}
	id := s.directory.Identity()
	mark := guard.Mark{Version: id.GuardVersion, On: id.Guards}
	if mark.On && !a.provable() && !a.local {
		return fmt.Errorf("authentication is enabled in the cluster of %s, so servers have to prove "+
			"that they are some, and none could prove it to this one at %s (with --insecure as well): "+
			"start it with what the other servers have, --secret-file, or --tls-ca or --tls-peer-ca",
			s.config.Dir, s.config.Listen)
	}
	a.Guard, err = guard.New(guard.Config{Source: s.core, Mark: mark, Save: s.directory.SetGuards,
		Data: s.config.has(RoleNode), Changed: a.changed, Monotonic: s.config.Monotonic,
		Logger: s.config.Logger, Registerer: s.config.Registry})
	if err != nil {
		return err
	}
	a.closeDoor(mark.On)
	s.auth = a
	return nil
}

// judge is what clients of keyspaces are judged by.
func (a *authFollower) judge() access.Guard {
	if a.given != nil {
		return a.given
	}
	return a.Guard
}

// changed is called when the core says whether the server has to follow users and roles.
func (a *authFollower) changed(m guard.Mark) {
	a.closeDoor(m.On)
	a.wake()
}

// provable says that servers can prove to this one that they are servers.
func (a *authFollower) provable() bool {
	return a.peers.Certificate != nil || len(a.peers.Secret) > 0
}

// closeDoor has the server take no process for a server that does not prove it, or ends that.
// Processes of this machine, if only they reach it, need not prove what they cannot.
func (a *authFollower) closeDoor(closed bool) {
	if a.provable() || !a.local {
		a.peers.Close(closed)
	}
}

// provesServer says why a caller has not proved to be a server; nil if it has, or need not.
func (a *authFollower) provesServer(ctx context.Context) error {
	if !a.provable() && a.local {
		return nil
	}
	return a.peers.Proved(ctx)
}

// report is what this server tells the core's leader of itself.
func (a *authFollower) report() *clusterpb.GuardReport {
	r := a.Report()
	r.Closes = !a.peers.Open || a.provable() || a.local
	return r
}

// reporting is the core as a data node sees it, whose heartbeats have the server's report as well.
type reporting struct {
	*coreclient.Client
	of *Server
}

// Heartbeat implements node.Metadata.
func (c reporting) Heartbeat(
	ctx context.Context, r *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	r.Guard = c.of.auth.report()
	response, err := c.Client.Heartbeat(ctx, r)
	c.of.auth.Learn(response.GetGuard())
	return response, err
}

const (
	// defaultGuardTimeout bounds how long enabling authentication waits for servers, and guardPoll
	// is how often it asks for them: a member of the core that holds no data tells of itself every
	// 2 s.
	defaultGuardTimeout = 6 * time.Second
	guardPoll           = 50 * time.Millisecond
)

// guardedKeyspaces are the keyspaces of the cluster, as the etcd API needs them.
type guardedKeyspaces struct{ server *Server }

// ID implements users.Keyspaces.
func (k guardedKeyspaces) ID(ctx context.Context, name string) (uint64, error) {
	names, err := k.Names(ctx)
	if err != nil {
		return 0, err
	}
	for id, n := range names {
		if n == name {
			return id, nil
		}
	}
	return 0, status.Errorf(codes.NotFound, "there is no keyspace %q", name)
}

// Names implements users.Keyspaces.
func (k guardedKeyspaces) Names(ctx context.Context) (map[uint64]string, error) {
	r, err := k.server.core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return nil, unavailable(err)
	}
	names := map[uint64]string{}
	for _, info := range r.Keyspaces {
		if ks := info.Keyspace; ks.State != clusterpb.KeyspaceState_DROPPING {
			names[uint64(ks.Id)] = ks.Name
		}
	}
	return names, nil
}

func unavailable(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

func (k guardedKeyspaces) guarding(
	ctx context.Context, do clusterpb.GuardingRequest_Do, version uint64,
) (*clusterpb.GuardingResponse, error) {
	r, err := k.server.core.Guarding(ctx, &clusterpb.GuardingRequest{
		Cluster: k.server.cluster.Load(), Do: do, Version: version})
	if err != nil {
		return nil, unavailable(err)
	}
	return r, nil
}

// Guarding implements users.Keyspaces.
func (k guardedKeyspaces) Guarding(ctx context.Context) (uint64, bool, error) {
	r, err := k.guarding(ctx, clusterpb.GuardingRequest_SHOW, 0)
	return r.GetGuard().GetVersion(), r.GetGuard().GetOn(), err
}

// Release implements users.Keyspaces.
func (k guardedKeyspaces) Release(ctx context.Context, version uint64) (ending uint64, err error) {
	r, err := k.guarding(ctx, clusterpb.GuardingRequest_END, version)
	if r.GetGuard().GetEnding() {
		ending = r.Guard.Version
	}
	return ending, err
}

// Guard implements users.Keyspaces. Whether servers can prove themselves comes first: a server
// that could not would be cut off from those that follow.
func (k guardedKeyspaces) Guard(ctx context.Context, again bool) (version uint64, err error) {
	timeout := k.server.config.guardTimeout
	if timeout <= 0 {
		timeout = defaultGuardTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := k.await(ctx, (*clusterpb.GuardingResponse).GetOpen)
	if err != nil {
		return 0, err
	}
	if !r.Guard.On || r.Guard.Ending || !again {
		if r, err = k.guarding(ctx, clusterpb.GuardingRequest_BEGIN, 0); err != nil {
			return 0, err
		}
		version = r.Guard.Version
	}
	r, err = k.await(ctx, func(r *clusterpb.GuardingResponse) []*clusterpb.UnguardedServer {
		return append(r.Open, r.Behind...)
	})
	if err != nil {
		return version, err
	}
	if !r.Guard.On || r.Guard.Ending {
		return version, status.Error(codes.Unavailable,
			"authentication was disabled while it was being enabled; try again")
	}
	return r.Guard.Version, nil
}

// await waits until no server is in the way.
func (k guardedKeyspaces) await(
	ctx context.Context, of func(*clusterpb.GuardingResponse) []*clusterpb.UnguardedServer,
) (*clusterpb.GuardingResponse, error) {
	for {
		r, err := k.guarding(ctx, clusterpb.GuardingRequest_SHOW, 0)
		if err != nil {
			return nil, err
		}
		inTheWay := of(r)
		if len(inTheWay) == 0 {
			return r, nil
		}
		if !pause(ctx, guardPoll) {
			return nil, cannotEnable(inTheWay)
		}
	}
}

// maxNamed bounds the servers that an error names.
const maxNamed = 10

func cannotEnable(servers []*clusterpb.UnguardedServer) error {
	var texts []string
	for _, x := range servers {
		text := x.Address + ": " + x.Reason
		if x.Node != 0 {
			text = fmt.Sprintf("node %d at %s", x.Node, text)
		}
		texts = append(texts, text)
	}
	if n := len(texts); n > maxNamed {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", n-maxNamed))
	}
	return status.Error(codes.FailedPrecondition, "authentication is not enabled, because it would "+
		"not hold on all servers: "+strings.Join(texts, "; "))
}
