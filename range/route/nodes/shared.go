package nodes

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// Owner is what nodes need of the sender of requests.
type Owner interface {
	// Cluster is the id of the cluster; 0 while it is not known.
	Cluster() uint64
	// Knows reports whether the table has a node.
	Knows(keys.NodeID) bool
	// NextSequence numbers a request.
	NextSequence() uint64
	// Unreachable is called with the address of a node that has become suspected. The lock of the
	// node is held.
	Unreachable(address string)
}

// Config is what Nodes are made of.
type Config struct {
	Owner Owner
	// Lanes is how many connections carry requests to each node, and Dialer says how they are made.
	Lanes  int
	Dialer client.DialerConfig
	// Random gives random numbers, for client ids and jitter.
	Random func() uint64
	Logger *slog.Logger
	// Region and Zone say where the sender is; empty: that is not known.
	Region, Zone string
	// Server says that the sender is a server's.
	Server   bool
	Clock    *clock.Clock
	Identity *identity.Identity
	Life     *lifetime.Lifetime
	// Suspected counts the suspected nodes.
	Suspected *metric.Gauge
	// Held counts the seconds for which requests were held back because a node refuses some.
	Held *metric.Counter
	// Tracer makes the spans of requests; nil makes none.
	Tracer *calltrace.Tracer
}

// sharedLane is what lane i of all nodes has in common.
type sharedLane struct {
	client  uint64
	streams atomic.Uint64
	dialer  *client.Dialer
}

const (
	// watchdogTick is how often the watchdog looks.
	watchdogTick = 200 * time.Millisecond
	// stuckAfter ticks a request is sent again, although its node answers others: it must have been
	// lost.
	stuckAfter = 100
	// Patience is how long a request waits at its node, for a lock or in a queue, before the node
	// says so and the request is sent again: not so long that it is taken for lost.
	Patience = stuckAfter * watchdogTick / 2
	// tickRing is above stuckAfter, so that a slot of the ring is empty when its turn comes again.
	tickRing = 128
)

// shared is what all nodes of a sender, and their lanes, have in common.
type shared struct {
	config Config
	lanes  []*sharedLane
	// ticks are those of the watchdog.
	ticks atomic.Uint32
}

// random is uniform in [0, 1).
func (s *shared) random() float64 { return float64(s.config.Random()>>11) / (1 << 53) }

// Distance is how far away a node is by its locality.
type Distance int32

const (
	SameZone Distance = iota
	SameRegion
	Elsewhere
)

// distanceTo compares the sender's locality with a node's. Zones of different regions are different
// ones, whatever their names; without a locality all nodes are equal.
func (s *shared) distanceTo(l *clusterpb.Locality) Distance {
	region, zone := s.config.Region, s.config.Zone
	switch near := region == "" || region == l.GetRegion(); {
	case near && zone != "" && zone == l.GetZone():
		return SameZone
	case region != "" && near:
		return SameRegion
	}
	return Elsewhere
}
