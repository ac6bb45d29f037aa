package nodes

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/keys"
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
}

// sharedLane is what lane i of all nodes has in common.
type sharedLane struct {
	client  uint64
	streams atomic.Uint64
	dialer  *client.Dialer
}

// Nodes are all nodes that a sender has heard of.
type Nodes struct {
	config Config
	lanes  []*sharedLane
	// ticks are those of the watchdog.
	ticks atomic.Uint32
	// all are the values of the map.
	all atomic.Pointer[[]*Node]
	mu  struct {
		sync.Mutex
		nodes map[keys.NodeID]*Node
	}
}

// New makes an empty set of nodes. Watch it, and close it after use.
func New(config Config) *Nodes {
	s := &Nodes{config: config}
	for range config.Lanes {
		lane := &sharedLane{dialer: client.NewDialer(config.Dialer)}
		for lane.client == 0 {
			lane.client = config.Random()
		}
		s.lanes = append(s.lanes, lane)
	}
	s.mu.nodes = make(map[keys.NodeID]*Node)
	s.all.Store(&[]*Node{})
	return s
}

// Watch starts the watchdog.
func (s *Nodes) Watch() { s.config.Life.Go(s.watch) }

// Close ends all streams. The lifetime must have ended, so that no new ones are made.
func (s *Nodes) Close() {
	s.mu.Lock()
	all := *s.all.Load()
	s.mu.Unlock()
	for _, n := range all {
		n.mu.Lock()
		//lint:ignore SA2001 a lane that is being made is made by now, or sees that this is closed
		n.mu.Unlock()
		n.hangUp()
	}
	for _, l := range s.lanes {
		_ = l.dialer.Close() // nothing is left that could tell us more
	}
}

// Lanes is the number of lanes of each node.
func (s *Nodes) Lanes() int { return len(s.lanes) }

// Dialer makes connections of the first lane.
func (s *Nodes) Dialer() *client.Dialer { return s.lanes[0].dialer }

// Get finds or makes a node. info is what the table says of it.
func (s *Nodes) Get(id keys.NodeID, info *clusterpb.Node) *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.mu.nodes[id]
	if n == nil {
		n = &Node{of: s, ID: id}
		for i := range s.lanes {
			n.Lanes = append(n.Lanes, &Lane{Node: n, Index: i})
		}
		n.mu.address = addressOf(info)
		n.distance.Store(int32(s.distanceTo(info.GetLocality())))
		s.mu.nodes[id] = n
		all := append(*s.all.Load(), n)
		s.all.Store(&all)
	}
	return n
}

// Update takes in what the table says of nodes.
func (s *Nodes) Update(infos map[keys.NodeID]*clusterpb.Node) {
	for id, info := range infos {
		n := s.Get(id, info)
		n.distance.Store(int32(s.distanceTo(info.GetLocality())))
		n.move(addressOf(info))
	}
}

// Show shows a token on the streams to nodes that are open.
func (s *Nodes) Show(token string) {
	for _, n := range *s.all.Load() {
		for _, l := range n.Lanes {
			if c := l.conn.Load(); c != nil {
				if err := c.Show(token); err != nil {
					s.config.Logger.Debug("token not shown", "node", n.ID, "error", err)
				}
			}
		}
	}
}

// random is uniform in [0, 1).
func (s *Nodes) random() float64 { return float64(s.config.Random()>>11) / (1 << 53) }

// Distance is how far away a node is by its locality.
type Distance int32

const (
	SameZone Distance = iota
	SameRegion
	Elsewhere
)

// distanceTo compares the sender's locality with a node's. Zones of different regions are different
// ones, whatever their names; without a locality all nodes are equal.
func (s *Nodes) distanceTo(l *clusterpb.Locality) Distance {
	region, zone := s.config.Region, s.config.Zone
	switch near := region == "" || region == l.GetRegion(); {
	case near && zone != "" && zone == l.GetZone():
		return SameZone
	case region != "" && near:
		return SameRegion
	}
	return Elsewhere
}
