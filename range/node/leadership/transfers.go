package leadership

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// transferBackoff is how long a group is left alone after an attempted transfer. It doubles
	// each time up to maxTransferBackoff, so that a preferred replica that cannot keep the
	// leadership does not pull it back and forth.
	transferBackoff    = 10 * time.Second
	maxTransferBackoff = 10 * time.Minute
	// BusyDelay is the time for an answer of a worker from which this node counts as too busy for
	// transfers that can wait.
	BusyDelay = 250 * time.Millisecond
	// BusyGroups is the number of awake groups from which the node counts as busy: each transfer,
	// and each election, wakes one more.
	BusyGroups = host.BusyGroups
	// MaxAbdications bounds the leaderships that an unfit node gives away in a second.
	MaxAbdications = 1000
	// preferInterval is the interval at which leaderships are handed to preferred replicas;
	// transfersPerSecond bounds their number; settleTime is how long a node is up before it begins.
	preferInterval     = 3 * time.Second
	transfersPerSecond = 50
	settleTime         = 10 * time.Second
)

// Transfers hands leaderships to other replicas.
type Transfers struct {
	node  *hosted.Node
	count prometheus.Counter
}

// NewTransfers makes Transfers.
func NewTransfers(n *hosted.Node) *Transfers {
	n.Metrics.GaugeOf("misplaced_leaders", "Groups led here that another node should lead.",
		func() float64 { return float64(len(n.Leaders.Misplaced())) })
	return &Transfers{n, n.Metrics.Counter("leader_transfers_total",
		"Leaderships handed to other replicas.")}
}

// attempts says when a group may be handed over again. Only the preference goroutine uses it;
// groups that are no longer misplaced are forgotten when their time is over.
type attempts map[*hosted.Replica]*attempt

type attempt struct {
	after   time.Time
	backoff time.Duration
}

// Prefer hands leaderships to preferred replicas. It looks only at the groups that are led here and
// preferred elsewhere: after a restart of another node those that this one took over, otherwise no
// groups.
func (t *Transfers) Prefer(ctx context.Context) {
	if backoff.Sleep(ctx, settleTime) != nil {
		return
	}
	tried := make(attempts)
	for {
		began := time.Now()
		if t.node.Health.Fit() {
			t.preferRound(ctx, tried)
		}
		tried.prune(time.Now())
		if backoff.Sleep(ctx, max(0, preferInterval-time.Since(began))) != nil {
			return
		}
	}
}

// preferRound hands over as many leaderships as the rate allows in one interval.
func (t *Transfers) preferRound(ctx context.Context, tried attempts) {
	n := t.node
	budget := transfersPerSecond * int(preferInterval/time.Second)
	now := time.Now()
	for _, h := range n.Leaders.Misplaced() {
		if budget == 0 || ctx.Err() != nil || n.Host.Awake() > BusyGroups {
			return
		}
		state := tried[h]
		if state != nil && now.Before(state.after) {
			continue
		}
		to, at := h.Preferred()
		if to == 0 || h.Removed.Load() || n.Host.Peers().Down(at) || !n.Host.Clocks().Agrees(at) ||
			n.Host.Peers().WithoutRoom(at) || n.Host.Peers().LeaderAverse(at) {
			continue
		}
		handed, busy := t.handOver(ctx, h, to)
		if busy {
			return
		}
		if !handed {
			continue
		}
		if state == nil {
			state = &attempt{backoff: transferBackoff}
			tried[h] = state
		} else {
			state.backoff = min(2*state.backoff, maxTransferBackoff)
		}
		state.after = now.Add(state.backoff)
		budget--
		if backoff.Sleep(ctx, time.Second/transfersPerSecond) != nil {
			return
		}
	}
}

// prune forgets attempts that are long over.
func (t attempts) prune(now time.Time) {
	for h, state := range t {
		if now.Sub(state.after) > maxTransferBackoff || h.Removed.Load() {
			delete(t, h)
		}
	}
}

// handOver transfers a leadership if the replica is there and has everything that is applied here.
// busy reports that the answer took so long that this node is overloaded.
func (t *Transfers) handOver(ctx context.Context, h *hosted.Replica, to keys.ReplicaID) (handed,
	busy bool) {
	members := h.Replica.Configuration()
	if !members.Electable(to) {
		return false, false // the table lags behind a change of the replicas
	}
	asked := time.Now()
	answer := make(chan bool, 1)
	h.Group.Followers(func(followers map[keys.ReplicaID]group.Progress) {
		p, known := followers[to]
		answer <- known && p.Active && !p.Snapshot && p.Match >= h.Group.Applied()
	})
	timer := time.NewTimer(4 * BusyDelay)
	defer timer.Stop()
	select {
	case able := <-answer:
		if time.Since(asked) > BusyDelay {
			return false, true
		}
		if !able {
			return false, false
		}
	case <-timer.C: // or the group was removed meanwhile
		return false, true
	case <-ctx.Done():
		return false, true
	}
	t.Transfer(h, to)
	return true, false
}

// Transfer transfers a leadership to a replica.
func (t *Transfers) Transfer(h *hosted.Replica, to keys.ReplicaID) {
	t.count.Inc()
	h.Replica.Writes().TransferLeader(to)
}

// Abdicate gives leaderships away, if another replica can take them, because this node does not
// serve. It does not close what was served: the reason may be the node's clock, which must not push
// those of others, or its disk, which takes no entry. So the others wait for the end of the leases.
func (t *Transfers) Abdicate() {
	led := t.node.Leaders.Led()
	for _, h := range led[:min(len(led), MaxAbdications)] {
		t.GiveAway(h, func(uint64) int { return 1 }, host.AnyLag, func(to keys.ReplicaID) {
			_, term := h.Group.Leader()
			h.Group.Resign(term, to)
		})
	}
}

// GiveAway transfers a leadership to the replica with the longest log among those that are
// reachable, lack at most lag entries, and are on the hosts that rank highest
// (host.Group.Successor).
func (t *Transfers) GiveAway(h *hosted.Replica, rank func(host uint64) int, lag uint64,
	transfer func(keys.ReplicaID)) {
	h.Group.Successor(rank, lag, func(best keys.ReplicaID, _ uint64) {
		if best != 0 {
			t.count.Inc()
			transfer(best)
		}
	})
}

// Drain hands over all that this node leads, while it continues to serve, and returns how many
// leaderships are left: see host.Host.Drain. Close may follow.
func (t *Transfers) Drain(ctx context.Context) (left int) {
	n := t.node
	return n.Host.Drain(ctx, func(g *host.Group, term uint64, to keys.ReplicaID) {
		h := n.Replicas.Get(g.ID())
		if h == nil {
			return
		}
		t.count.Inc()
		if n.Health.Fit() {
			h.Replica.Writes().TransferLeader(to)
		} else {
			g.Resign(term, to) // as in Abdicate
		}
	})
}
