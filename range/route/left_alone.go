package route

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
)

// Which replicas of a partition are of no use to a read.
//
// A replica that has refused is left alone for a second. One that has not closed the timestamp that
// a read needs is of no use to that read only, and to others that need as much: what is closed
// there goes on as time does, so it is known when the replica is worth to be asked again. The same
// goes for a replica that has answered. So a read of what was written just now does not wait at a
// replica that closes timestamps a second later.

const (
	// leftAloneFor is how long a replica is left alone, and what is known of it counts.
	leftAloneFor = time.Second
	// maxReplicas is of how many replicas of a partition something is known.
	maxReplicas = 8
)

// replicas is what is known of the replicas of a partition. It lives as long as the leader hint.
type replicas struct {
	mu  sync.Mutex
	all []replica
}

// replica is what is known of one.
type replica struct {
	node *nodes.Node
	// closed is what was closed there at the moment heard; zero: that is not known.
	closed hlc.Timestamp
	heard  time.Time
	// until is how long it is left alone whatever is asked; behind, by linearisable reads.
	until, behind time.Time
}

// of finds what is known of a node, or makes it, in the place of the oldest.
func (r *replicas) ofLocked(n *nodes.Node) *replica {
	oldest := 0
	for i := range r.all {
		if r.all[i].node == n {
			return &r.all[i]
		}
		if r.all[i].heard.Before(r.all[oldest].heard) {
			oldest = i
		}
	}
	if len(r.all) < maxReplicas {
		r.all = append(r.all, replica{node: n})
		return &r.all[len(r.all)-1]
	}
	r.all[oldest] = replica{node: n}
	return &r.all[oldest]
}

// has notes what is closed at a replica that answered.
func (r *replicas) has(n *nodes.Node, closed hlc.Timestamp, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.closed, x.heard, x.until = closed, now, time.Time{}
}

// lags notes what is closed at a replica that refused because of it. One that cannot tell has
// nothing closed.
func (r *replicas) lags(n *nodes.Node, closed hlc.Timestamp, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.closed, x.heard = closed, now
	if closed.IsZero() {
		x.until = now.Add(leftAloneFor)
	}
}

// isBehind notes that a replica lacks what a leader has written just now.
func (r *replicas) isBehind(n *nodes.Node, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.heard, x.behind = now, now.Add(leftAloneFor)
}

// refuses notes that a replica refused for another reason.
func (r *replicas) refuses(n *nodes.Node, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.heard, x.until = now, now.Add(leftAloneFor)
}

// leaves says whether a read is to leave a replica alone.
func (r *replicas) leaves(n *nodes.Node, near *Near, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		x := &r.all[i]
		if x.node != n {
			continue
		}
		if now.Before(x.until) ||
			(near.Freshness == FreshLinearizable && now.Before(x.behind)) {
			return true
		}
		passed := now.Sub(x.heard)
		return !x.closed.IsZero() && passed < leftAloneFor &&
			x.closed.Add(passed+near.Wait).Less(near.need())
	}
	return false
}
