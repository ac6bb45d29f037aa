package route

import (
	"time"
)

// Backoff says how long to wait between attempts after one class of failure. The zero value does
// not wait.
type Backoff struct {
	// Name is the class, for metrics and messages.
	Name string
	// Base is the first wait; each further one is twice as long.
	Base time.Duration
	// Cap is the longest wait.
	Cap time.Duration
	// Jitter is the part of the wait that is random, 0 to 1: 0.5 waits between half of the step and
	// the whole of it.
	Jitter float64
	// AtOnce is how many attempts go without any wait before the first one waits.
	AtOnce int
	// Budget is the total time of one request in this class, after which it gives up; 0 is until
	// its context ends.
	Budget time.Duration
}

// The classes. Waits of the classes that look for a leader stay short: after a leader was killed
// the pause that a caller sees must be the election's, not ours.
var (
	// routing: the answer said where to go, or that the sender's picture is old.
	routingBackoff = Backoff{Name: "routing", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 1}
	// leaderless: no replica is known to lead the partition, and its replicas are asked in turn.
	// Each of them is asked once without a wait.
	leaderlessBackoff = Backoff{Name: "leaderless", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.3}
	// connection: the stream to the node broke, or no stream could be had.
	connectionBackoff = Backoff{Name: "connection", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 2}
	// overloaded: the node asks for patience.
	overloadedBackoff = Backoff{Name: "overloaded", Base: 20 * time.Millisecond, Cap: time.Second,
		Jitter: 0.5}
	// waited: the request waited at the node, for a lock or in a queue, for as long as it was
	// given, and did not run.
	waitedBackoff = Backoff{Name: "waited", Base: 20 * time.Millisecond, Cap: time.Second,
		Jitter: 0.5}
	// quorum: the leader has lost its quorum. Another leader may already exist, so the wait stays
	// moderate.
	quorumBackoff = Backoff{Name: "no-quorum", Base: 50 * time.Millisecond,
		Cap: 250 * time.Millisecond, Jitter: 0.5}
	// unhealthy: the node stopped serving on its own account (clock, disk).
	unhealthyBackoff = Backoff{Name: "unhealthy", Base: 50 * time.Millisecond,
		Cap: 500 * time.Millisecond, Jitter: 0.5}
	// unknown: the node itself does not know what became of the request.
	unknownBackoff = Backoff{Name: "outcome-unknown", Base: 5 * time.Millisecond,
		Cap: 100 * time.Millisecond, Jitter: 0.5}
	// identity: the node does not know the client's user, so another token is got first.
	identityBackoff = Backoff{Name: "identity"}
	// probe: pings to a suspected node.
	probeBackoff = Backoff{Name: "probe", Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond,
		Jitter: 0.3, AtOnce: 1}
	// table: opening the table stream anew.
	tableBackoff = Backoff{Name: "table", Base: 50 * time.Millisecond, Cap: time.Second,
		Jitter: 0.5, AtOnce: 1}
	// cluster: calls of the Cluster service that no server could answer.
	clusterBackoff = Backoff{Name: "cluster", Base: 50 * time.Millisecond,
		Cap: 500 * time.Millisecond, Jitter: 0.5}
)

// delay is the wait before the attempt that follows failure number n, counted from 0. random is
// uniform in [0, 1).
func (b Backoff) delay(n int, random float64) time.Duration {
	n -= b.AtOnce
	if n < 0 || b.Base <= 0 {
		return 0
	}
	step := b.Cap
	if n < 32 {
		if d := b.Base << n; d > 0 && d < b.Cap {
			step = d
		}
	}
	return step - time.Duration(float64(step)*b.Jitter*random)
}
