package upgrade

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// server is one server that counts: a node that is not decommissioned, a member of the core, or
// both.
type server struct {
	*clusterpb.UpgradeServer
	// known is set if the leader knows what the server's program supports: the server has reported it
	// in the leader's term, or is registered as a node. If known is set and Levels is nil, the program
	// is from before there were levels.
	known bool
}

// target returns the level to which a cluster can be raised next: the level above the active one,
// if a server supports it, and otherwise the active level.
func (r Record) target(servers []server) release.Level {
	for _, s := range servers {
		if Supported(s.Levels).Max > r.active() {
			return r.active() + 1
		}
	}
	return r.active()
}

// obstacle says why a server prevents the cluster from being raised to a level, and what to do. It
// is empty if the server does not.
func (s server) obstacle(target release.Level) string {
	away := "let it go (`tidemark core remove`)"
	if s.Node != 0 {
		away = fmt.Sprintf("let it go (`tidemark node decommission %d`)", s.Node)
		if s.Member != 0 {
			away = fmt.Sprintf("let it go (`tidemark core remove %d` and `tidemark node decommission %d`)",
				s.Member, s.Node)
		}
	}
	switch supported := Supported(s.Levels); {
	case !s.known:
		return "it does not answer, and the version that it runs is not known: start it, or " + away
	case supported.Contains(target):
		return ""
	case target < supported.Min:
		return fmt.Sprintf("it supports %s: start a program of %s", supported, target.Release())
	case !s.Alive:
		return fmt.Sprintf("it does not answer, and supports no level above %d: upgrade it to %s, or %s",
			supported.Max, target.Release(), away)
	default:
		return fmt.Sprintf("it supports no level above %d: upgrade it to %s", supported.Max,
			target.Release())
	}
}

// assess fills in the obstacles of the servers. It returns the level to which the cluster can be
// raised next, and the number of servers with an obstacle.
func (r Record) assess(servers []server) (target release.Level, obstacles int) {
	target = r.target(servers)
	if target == r.active() {
		return target, 0
	}
	for _, s := range servers {
		if s.Obstacle = s.obstacle(target); s.Obstacle != "" {
			obstacles++
		}
	}
	return target, obstacles
}

// unnoted counts the servers that answer and have not recorded the coming level on their disks.
func (r Record) unnoted(servers []server) (n int) {
	for _, s := range servers {
		if s.Alive && release.Level(s.Levels.GetNoted()) < r.coming() {
			n++
		}
	}
	return n
}
