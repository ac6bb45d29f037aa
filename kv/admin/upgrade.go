package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Upgrade describes the upgrade of a cluster to a new release. Servers use the formats and messages
// of the cluster's level. A level is the number of a release's set of formats and messages.
type Upgrade struct {
	// Level is the active level. Coming is the next level while servers record it on their disks,
	// before it becomes active. It equals Level if no level is coming. Target is the level to which
	// the cluster can be raised next. It equals Level if no server supports a higher one.
	Level, Coming, Target uint32
	// Release and TargetRelease are the releases of Level and Target, as text.
	Release, TargetRelease string
	// Servers are the nodes that are not decommissioned, and the members of the core.
	Servers []UpgradeServer
	// Gates are the new formats and messages that servers use after the cluster is raised to Target.
	Gates []UpgradeGate
	// AutoAfter is the time after ReadySince at which an upgrade is finalised automatically. 0 means
	// never.
	AutoAfter time.Duration
	// ReadySince is the time since which every server has supported Target; zero if not every
	// server does, or if Target equals Level. ReadyFor is how long ago that was on the core's clock.
	ReadySince time.Time
	ReadyFor   time.Duration
}

// UpgradeServer is a server of the cluster, and the levels that its program supports.
type UpgradeServer struct {
	// Node is the id of the data node, and Member the id of the member of the core. An id is 0 if the
	// server has no such role.
	Node, Member     uint64
	Address, Version string
	// Alive: the server answers.
	Alive bool
	// Min and Max are the lowest and highest level that the server's program supports. Both are 0 for
	// a version from before there were levels.
	Min, Max uint32
	// Noted is the highest level that the server has recorded on its disk. Level is the level that the
	// server uses.
	Noted, Level uint32
	// Obstacle says why this server prevents the finalisation of the upgrade, and what to do. It is
	// empty if it does not.
	Obstacle string
}

// UpgradeGate is a new format or message that servers use from a level on.
type UpgradeGate struct {
	Name  string
	Level uint32
	// What describes what the cluster does when the gate is open, as text.
	What string
}

// Upgrade returns the state of an upgrade.
func (c *Client) Upgrade(ctx context.Context) (Upgrade, error) {
	return c.upgrade(ctx, &clusterpb.UpgradeRequest{})
}

// FinalizeUpgrade raises the cluster to the highest level that every server supports. From then on
// no server can go back to the previous release. It returns when that is recorded. Upgrade shows
// when the level is active. If servers prevent the finalisation, the error names them, and nothing
// is changed.
func (c *Client) FinalizeUpgrade(ctx context.Context) (Upgrade, error) {
	return c.upgrade(ctx, &clusterpb.UpgradeRequest{Finalize: true})
}

// SetUpgradeTimer sets the time after which upgrades are finalised automatically, once every server
// supports the new level. 0 means never.
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
