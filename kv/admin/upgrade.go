package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Upgrade shows how far the upgrade of a cluster to a new release is. Servers use the formats and
// messages of the cluster's level, which is the number of a release's set of them.
type Upgrade struct {
	// Level is the active level. Coming is the level that servers note at present, before it
	// becomes active; it equals Level if none is coming. Target is the level to which the cluster
	// can be raised next; it equals Level if no server supports a higher one.
	Level, Coming, Target uint32
	// Release and TargetRelease are the releases of Level and Target, as text.
	Release, TargetRelease string
	// Servers are the nodes that are not decommissioned, and the members of the core.
	Servers []UpgradeServer
	// Gates are what the servers begin to do when the cluster is raised to Target.
	Gates []UpgradeGate
	// AutoAfter is how long after ReadySince an upgrade is finalised by itself; 0: never.
	AutoAfter time.Duration
	// ReadySince is the time since which every server has supported Target; zero if not every
	// server does, or if Target equals Level. ReadyFor is how long ago that was on the core's clock.
	ReadySince time.Time
	ReadyFor   time.Duration
}

// UpgradeServer is a server of the cluster, and the levels that its program supports.
type UpgradeServer struct {
	// Node is the id of the data node, Member that of the member of the core; 0: the server is none.
	Node, Member     uint64
	Address, Version string
	// Alive: the server answers.
	Alive bool
	// Min and Max are the levels that the server's program supports. Both are 0 of a version from
	// before there were levels.
	Min, Max uint32
	// Noted is the highest level that the server has noted on its disk, and Level the one that it
	// goes by.
	Noted, Level uint32
	// Obstacle is why the upgrade cannot be finalised with this server, and what to do; empty if it
	// can.
	Obstacle string
}

// UpgradeGate is a new format or message, which is used from a level on.
type UpgradeGate struct {
	Name  string
	Level uint32
	// What is what the cluster does when the gate is open, as text.
	What string
}

// Upgrade shows how far an upgrade is.
func (c *Client) Upgrade(ctx context.Context) (Upgrade, error) {
	return c.upgrade(ctx, &clusterpb.UpgradeRequest{})
}

// FinalizeUpgrade raises the cluster to the highest level that every server supports. From then on
// no server can go back to the release before. It returns when that is recorded; Upgrade shows when
// the level is active. An error names the servers that are in the way, and nothing is changed then.
func (c *Client) FinalizeUpgrade(ctx context.Context) (Upgrade, error) {
	return c.upgrade(ctx, &clusterpb.UpgradeRequest{Finalize: true})
}

// SetUpgradeTimer has upgrades finalised by themselves, so long after every server supports the new
// level; 0: never.
func (c *Client) SetUpgradeTimer(ctx context.Context, after time.Duration) (Upgrade, error) {
	if after < 0 {
		return Upgrade{}, invalid("set the timer of upgrades", "", "the time is %s", after)
	}
	return c.upgrade(ctx, &clusterpb.UpgradeRequest{
		AutoAfterMillis: new(uint64(after.Milliseconds()))})
}

func (c *Client) upgrade(ctx context.Context, request *clusterpb.UpgradeRequest) (Upgrade, error) {
	r, err := ask(ctx, c, "upgrade", "", clusterpb.ClusterClient.Upgrade, request)
	if err != nil {
		return Upgrade{}, err
	}
	name := func(level uint32) string {
		if level < uint32(len(r.GetReleases())) {
			return r.GetReleases()[level]
		}
		return "a later release"
	}
	u := Upgrade{Level: r.GetLevel().GetActive(), Coming: r.GetLevel().GetComing(),
		Target: r.GetTarget(), AutoAfter: time.Duration(r.GetAutoAfterMillis()) * time.Millisecond}
	u.Release, u.TargetRelease = name(u.Level), name(u.Target)
	if since := r.GetReadySinceUnixMs(); since > 0 {
		u.ReadySince = time.UnixMilli(since)
		u.ReadyFor = time.Duration(max(0, r.GetNowUnixMs()-since)) * time.Millisecond
	}
	for _, s := range r.GetServers() {
		l := s.GetLevels()
		u.Servers = append(u.Servers, UpgradeServer{Node: s.GetNode(), Member: s.GetMember(),
			Address: s.GetAddress(), Version: s.GetVersion(), Alive: s.GetAlive(), Min: l.GetMin(),
			Max: l.GetMax(), Noted: l.GetNoted(), Level: l.GetActive(), Obstacle: s.GetObstacle()})
	}
	for _, g := range r.GetGates() {
		u.Gates = append(u.Gates, UpgradeGate{Name: g.GetName(), Level: g.GetLevel(),
			What: g.GetWhat()})
	}
	return u, nil
}
