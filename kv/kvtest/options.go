package kvtest

import (
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// Options describe a Cluster. The zero value is a cluster of three data nodes, one of which is the
// consistent core too.
type Options struct {
	// Nodes is the number of data nodes, default 3; Cores that of members of the consistent core:
	// 1, 3 or 5, default 1.
	Nodes, Cores int
	// Separate gives each member of the core a server of its own: servers 0 to Cores-1 are the
	// core, those after them the data nodes. Otherwise the first Cores of the data nodes are the
	// core as well.
	Separate bool
	// Seed makes the servers' random choices (but not Go's scheduler, nor Raft's election timeouts)
	// repeat themselves. Default: a random one.
	Seed uint64
	// Latency of every link, in one direction. Default: none. Inside a synctest bubble give one,
	// such as 200 µs: time stands still there for as long as any goroutine has something to do.
	Latency time.Duration
	// Logger gets the servers' logs, with the server's number. Default: the last lines are kept,
	// and shown if the test fails.
	Logger *slog.Logger
	// Configure may change the configuration of a server before each start; optional.
	Configure func(server int, c *embedded.ServerConfig)
	// StartTimeout bounds Start. Default one minute.
	StartTimeout time.Duration
	// NotReady makes Start return without waiting until the servers are ready.
	NotReady bool
}

func (o *Options) ensureDefaults(random func() uint64) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Cores == 0 {
		o.Cores = 1
	}
	if o.Seed == 0 {
		o.Seed = random()
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
}

// servers is how many servers there are.
func (o *Options) servers() int {
	if o.Separate {
		return o.Nodes + o.Cores
	}
	return max(o.Nodes, o.Cores)
}

// roles of a server.
func (o *Options) roles(server int) []string {
	var roles []string
	if server < o.Cores {
		roles = append(roles, embedded.RoleCore)
	}
	if o.Separate && server >= o.Cores || !o.Separate && server < o.Nodes {
		roles = append(roles, embedded.RoleNode)
	}
	return roles
}
