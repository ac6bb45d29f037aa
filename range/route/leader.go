package route

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
)

// leader is a hint: which node leads a partition. Immutable.
type leader struct {
	// node is nil when the last known leader turned out not to lead any more and no other is known
	// to.
	node *nodes.Node
	// term is the highest term heard of; 0 when none.
	term uint64
	// incarnation is the node's at the time of the hint: when the node's connection broke since,
	// the hint is void.
	incarnation uint64
	// denied is the node of a hint that proved wrong, when node is nil. Until deniedUntil, other
	// nodes that say that it leads in this term are not believed: they have not heard yet.
	denied      *nodes.Node
	deniedUntil time.Time
}

// denial is how long a node's own denial outweighs what others say.
const denial = 100 * time.Millisecond

// usable reports whether requests may be sent by the hint.
func (l *leader) usable() bool {
	return l != nil && l.node != nil && l.incarnation == l.node.Incarnation() &&
		!l.node.Suspected()
}

// leaderHint holds the leader hint of one partition, and the requests that wait for a better one.
// It outlives the table snapshots.
type leaderHint struct {
	leader atomic.Pointer[leader]
	// token is held by the one request that looks for the leader.
	token chan struct{}
	// misses counts the answers since a leader was last known, position is where the walk over the
	// replicas is. Both belong to the holder of the token; misses is also reset by the request that
	// finds the leader.
	misses   atomic.Int32
	position int

	// replicas is what reads know that any replica may answer.
	replicas replicas

	mu struct {
		sync.Mutex
		// changed is closed when the hint changes; nil while no request waits.
		changed chan struct{}
	}
}

func newLeaderHint() *leaderHint { return &leaderHint{token: make(chan struct{}, 1)} }

// learn takes a hint that came with the table or an answer. A hint of a lower term than the one
// held is ignored, as is news that is no news. from is the node that said so; nil for the table.
func (c *leaderHint) learn(n *nodes.Node, term uint64, from *nodes.Node, now time.Time) {
	incarnation := n.Incarnation()
	for {
		old := c.leader.Load()
		next := &leader{node: n, term: term, incarnation: incarnation}
		if old != nil {
			if term < old.term {
				return
			}
			if old.node == n && old.term == term && old.incarnation == incarnation {
				return
			}
			if old.denied == n && old.term == term && from != n && now.Before(old.deniedUntil) {
				return
			}
		}
		if c.leader.CompareAndSwap(old, next) {
			c.misses.Store(0)
			c.wake()
			return
		}
	}
}

// infer notes that a node answered a read that only a leader answers; in which term is not known.
func (c *leaderHint) infer(n *nodes.Node, now time.Time) {
	var term uint64
	if old := c.leader.Load(); old != nil {
		if old.usable() {
			return
		}
		term = old.term
	}
	c.learn(n, term, n, now)
}

// drop voids a hint that proved wrong, unless a newer one is there already.
func (c *leaderHint) drop(wrong *leader, now time.Time) {
	c.leader.CompareAndSwap(wrong,
		&leader{term: wrong.term, denied: wrong.node, deniedUntil: now.Add(denial)})
}

// changed is closed at the next change of the hint. Look at the hint again after calling it.
func (c *leaderHint) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.changed == nil {
		c.mu.changed = make(chan struct{})
	}
	return c.mu.changed
}

func (c *leaderHint) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.changed != nil {
		close(c.mu.changed)
		c.mu.changed = nil
	}
}

// nextReplica is the next voter to ask in the walk, leaving out suspected nodes; nil when there is
// none. Only the holder of the token calls it.
func (c *leaderHint) nextReplica(p *Partition) *nodes.Node {
	for range p.voters {
		n := p.voters[c.position%len(p.voters)]
		c.position++
		if !n.Suspected() {
			return n
		}
	}
	return nil
}

// Leader is a leader hint as others see it.
type Leader struct {
	Node keys.NodeID
	Term uint64
}

// Leader returns the partition's leader hint; ok is false when there is no usable one.
func (p *Partition) Leader() (Leader, bool) {
	l := p.hint.leader.Load()
	if !l.usable() {
		return Leader{}, false
	}
	return Leader{Node: l.node.ID, Term: l.term}, true
}
