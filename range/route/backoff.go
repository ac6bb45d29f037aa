package route

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// The classes. Waits of the classes that look for a leader stay short: after a leader was killed
// the pause that a caller sees must be the election's, not ours.
var (
	// routing: the answer said where to go, or that the sender's picture is old.
	routingBackoff = backoff.Backoff{Name: "routing", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 1}
	// leaderless: no replica is known to lead the partition, and its replicas are asked in turn.
	// Each of them is asked once without a wait.
	leaderlessBackoff = backoff.Backoff{Name: "leaderless", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.3}
	// connection: the stream to the node broke, or no stream could be had.
	connectionBackoff = backoff.Backoff{Name: "connection", Base: 5 * time.Millisecond,
		Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 2}
	// overloaded: the node asks for patience.
	overloadedBackoff = backoff.Backoff{Name: "overloaded", Base: 20 * time.Millisecond, Cap: time.Second,
		Jitter: 0.5}
	// waited: the request waited at the node, for a lock or in a queue, for as long as it was
	// given, and did not run.
	waitedBackoff = backoff.Backoff{Name: "waited", Base: 20 * time.Millisecond, Cap: time.Second,
		Jitter: 0.5}
	// quorum: the leader has lost its quorum. Another leader may already exist, so the wait stays
	// moderate.
	quorumBackoff = backoff.Backoff{Name: "no-quorum", Base: 50 * time.Millisecond,
		Cap: 250 * time.Millisecond, Jitter: 0.5}
	// unhealthy: the node stopped serving on its own account (clock, disk).
	unhealthyBackoff = backoff.Backoff{Name: "unhealthy", Base: 50 * time.Millisecond,
		Cap: 500 * time.Millisecond, Jitter: 0.5}
	// unknown: the node itself does not know what became of the request.
	unknownBackoff = backoff.Backoff{Name: "outcome-unknown", Base: 5 * time.Millisecond,
		Cap: 100 * time.Millisecond, Jitter: 0.5}
	// identity: the node does not know the client's user, so another token is got first.
	identityBackoff = backoff.Backoff{Name: "identity"}
	// cluster: calls of the Cluster service that no server could answer.
	clusterBackoff = backoff.Backoff{Name: "cluster", Base: 50 * time.Millisecond,
		Cap: 500 * time.Millisecond, Jitter: 0.5}
)
