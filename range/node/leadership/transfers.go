package leadership

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
)

const (
	// transferBackoff is how long a group is left alone after a transfer was tried; it doubles with
	// each up to maxTransferBackoff, so that a preferred replica that cannot keep the lead does not
	// pull it to and fro.
	transferBackoff    = 10 * time.Second
	maxTransferBackoff = 10 * time.Minute
	// BusyDelay is how long a worker may take to get to a question before this node counts as too
	// busy for niceties.
	BusyDelay = 250 * time.Millisecond
	// BusyGroups is how many awake groups are enough to do: each transfer, and each election, wakes
	// one more.
	BusyGroups = host.BusyGroups
	// MaxAbdications bounds the leaderships that an unfit node gives away in a second.
	MaxAbdications = 1000
	// preferInterval is how often leaderships are handed to the replicas that are preferred,
	// transfersPerSecond bounds how many of them, and settleTime is how long a node has been up
	// before it begins.
	preferInterval     = 3 * time.Second
	transfersPerSecond = 50
	settleTime         = 10 * time.Second
)

// Transfers hand leaderships to other replicas.
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

// attempts is when a group may be handed over again. Of the preference goroutine alone; groups
// that are not misplaced any more are forgotten when their time is over.
type attempts map[*hosted.Replica]*attempt

type attempt struct {
	after   time.Time
	backoff time.Duration
}

// Prefer hands leaderships to the replicas that are preferred. It looks only at the groups
// that are led here and preferred elsewhere: after a restart of another node those that this one
// took over, and then none.
func (t *Transfers) Prefer(ctx context.Context) {
	if task.Pause(ctx, settleTime) != nil {
		return
	}
	tried := make(attempts)
	for {
		began := time.Now()
		if t.node.Health.Fit() {
			t.preferRound(ctx, tried)
		}
		tried.prune(time.Now())
		if task.Pause(ctx, max(0, preferInterval-time.Since(began))) != nil {
			return
		}
	}
}

// preferRound hands over as many as the rate allows in one interval.
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
		if to == 0 || h.Removed.Load() || n.Host.PeerDown(at) || !n.Host.Clocks().Agrees(at) ||
			n.Host.PeerWithoutRoom(at) || n.Host.PeerLeaderAverse(at) {
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
		if task.Pause(ctx, time.Second/transfersPerSecond) != nil {
			return
		}
	}
}

// prune forgets what is long over.
func (t attempts) prune(now time.Time) {
	for h, state := range t {
		if now.Sub(state.after) > maxTransferBackoff || h.Removed.Load() {
			delete(t, h)
		}
	}
}

// handOver transfers a leadership if the replica is there and has everything that is applied here.
// busy says that the answer took so long that this node has other worries.
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

// Abdicate gives leaderships away, if another replica can take them: this node does not serve. What
// it served is not closed: its clock may be the reason, and must not push those of the others, or
// its disk, which takes no entry. So the others wait for the end of the leases.
func (t *Transfers) Abdicate() {
	led := t.node.Leaders.Led()
	for _, h := range led[:min(len(led), MaxAbdications)] {
		t.GiveAway(h, func(uint64) int { return 1 }, host.AnyLag, func(to keys.ReplicaID) {
			_, term := h.Group.Leader()
			h.Group.Resign(term, to)
		})
	}
}

// GiveAway has a leadership transferred to the replica that has most, of those that are there, lack
// no more than lag entries, and are on the hosts that rank highest (host.Group.Successor).
func (t *Transfers) GiveAway(h *hosted.Replica, rank func(host uint64) int, lag uint64,
	transfer func(keys.ReplicaID)) {
	h.Group.Successor(rank, lag, func(best keys.ReplicaID, _ uint64) {
		if best != 0 {
			t.count.Inc()
			transfer(best)
		}
	})
}

// Drain hands over all that this node leads, while it goes on serving, and returns how many
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
