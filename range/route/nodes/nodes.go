package nodes

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Nodes are all nodes that a sender has heard of.
type Nodes struct {
	shared
	// all are the values of the map.
	all atomic.Pointer[[]*Node]
	mu  struct {
		sync.Mutex
		nodes map[keys.NodeID]*Node
	}
}

// New makes an empty set of nodes. Watch it, and close it after use.
func New(config Config) *Nodes {
	s := &Nodes{shared: shared{config: config}}
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
		n = &Node{of: &s.shared, ID: id}
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
