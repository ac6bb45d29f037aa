package table

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/nodes"
)

// Hint says which node leads a partition. Immutable.
type Hint struct {
	// Node is nil when the last known leader turned out not to lead any more and no other is known
	// to.
	Node *nodes.Node
	// Term is the highest term heard of; 0 when none.
	Term uint64
	// Incarnation is the node's at the time of the hint: when the node's connection broke since,
	// the hint is void.
	Incarnation uint64
	// denied is the node of a hint that proved wrong, when node is nil. Until deniedUntil, other
	// nodes that say that it leads in this term are not believed: they have not heard yet.
	denied      *nodes.Node
	deniedUntil time.Time
}

// denial is how long a node's own denial outweighs what others say.
const denial = 100 * time.Millisecond

// Usable reports whether requests may be sent by the hint.
func (l *Hint) Usable() bool {
	return l != nil && l.Node != nil && l.Incarnation == l.Node.Incarnation() &&
		!l.Node.Suspected()
}

// Hints holds the leader hint of one partition, and the requests that wait for a better one.
// It outlives the table snapshots.
type Hints struct {
	current atomic.Pointer[Hint]
	// Token is held by the one request that looks for the leader.
	Token chan struct{}
	// Misses counts the answers since a leader was last known, position is where the walk over the
	// replicas is. Both belong to the holder of the token; Misses is also reset by the request that
	// finds the leader.
	Misses   atomic.Int32
	position int

	// Replicas is what reads know that any replica may answer.
	Replicas Replicas

	mu struct {
		sync.Mutex
		// changed is closed when the hint changes; nil while no request waits.
		changed chan struct{}
	}
}

// NewHints makes Hints that know of no leader.
func NewHints() *Hints { return &Hints{Token: make(chan struct{}, 1)} }

// Current is the hint as it is now; nil: none was heard of.
func (c *Hints) Current() *Hint { return c.current.Load() }

// Learn takes a hint that came with the table or an answer. A hint of a lower term than the one
// held is ignored, as is news that is no news. from is the node that said so; nil for the table.
func (c *Hints) Learn(n *nodes.Node, term uint64, from *nodes.Node, now time.Time) {
	incarnation := n.Incarnation()
	for {
		old := c.current.Load()
		next := &Hint{Node: n, Term: term, Incarnation: incarnation}
		if old != nil {
			if term < old.Term {
				return
			}
			if old.Node == n && old.Term == term && old.Incarnation == incarnation {
				return
			}
			if old.denied == n && old.Term == term && from != n && now.Before(old.deniedUntil) {
				return
			}
		}
		if c.current.CompareAndSwap(old, next) {
			c.Misses.Store(0)
			c.wake()
			return
		}
	}
}

// Infer notes that a node answered a read that only a leader answers; in which term is not known.
func (c *Hints) Infer(n *nodes.Node, now time.Time) {
	var term uint64
	if old := c.current.Load(); old != nil {
		if old.Usable() {
			return
		}
		term = old.Term
	}
	c.Learn(n, term, n, now)
}

// Drop voids a hint that proved wrong, unless a newer one is there already.
func (c *Hints) Drop(wrong *Hint, now time.Time) {
	c.current.CompareAndSwap(wrong,
		&Hint{Term: wrong.Term, denied: wrong.Node, deniedUntil: now.Add(denial)})
}

// Changed is closed at the next change of the hint. Look at the hint again after calling it.
func (c *Hints) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.changed == nil {
		c.mu.changed = make(chan struct{})
	}
	return c.mu.changed
}

func (c *Hints) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.changed != nil {
		close(c.mu.changed)
		c.mu.changed = nil
	}
}

// NextReplica is the next voter to ask in the walk, leaving out suspected nodes; nil when there is
// none. Only the holder of the token calls it.
func (c *Hints) NextReplica(voters []*nodes.Node) *nodes.Node {
	for range voters {
		n := voters[c.position%len(voters)]
		c.position++
		if !n.Suspected() {
			return n
		}
	}
	return nil
}
