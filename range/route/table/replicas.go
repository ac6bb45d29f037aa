package table

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
	// LeftAloneFor is how long a replica is left alone, and what is known of it counts.
	LeftAloneFor = time.Second
	// maxReplicas is of how many replicas of a partition something is known.
	maxReplicas = 8
)

// Replicas is what is known of the replicas of a partition. It lives as long as the leader hint.
type Replicas struct {
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
func (r *Replicas) ofLocked(n *nodes.Node) *replica {
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

// Has notes what is closed at a replica that answered.
func (r *Replicas) Has(n *nodes.Node, closed hlc.Timestamp, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.closed, x.heard, x.until = closed, now, time.Time{}
}

// Lags notes what is closed at a replica that refused because of it. One that cannot tell has
// nothing closed.
func (r *Replicas) Lags(n *nodes.Node, closed hlc.Timestamp, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.closed, x.heard = closed, now
	if closed.IsZero() {
		x.until = now.Add(LeftAloneFor)
	}
}

// IsBehind notes that a replica lacks what a leader has written just now.
func (r *Replicas) IsBehind(n *nodes.Node, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.heard, x.behind = now, now.Add(LeftAloneFor)
}

// Refuses notes that a replica refused for another reason.
func (r *Replicas) Refuses(n *nodes.Node, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.ofLocked(n)
	x.heard, x.until = now, now.Add(LeftAloneFor)
}

// Leaves says whether a read is to leave a replica alone. The read needs a timestamp to be closed,
// and waits for that for some time; linearizable: it needs what a leader has just admitted.
func (r *Replicas) Leaves(n *nodes.Node, need hlc.Timestamp, wait time.Duration,
	linearizable bool, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		x := &r.all[i]
		if x.node != n {
			continue
		}
		if now.Before(x.until) ||
			(linearizable && now.Before(x.behind)) {
			return true
		}
		passed := now.Sub(x.heard)
		return !x.closed.IsZero() && passed < LeftAloneFor &&
			x.closed.Add(passed+wait).Less(need)
	}
	return false
}
