package node

import (
	"context"
	"time"

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
	// busyDelay is how long a worker may take to get to a question before this node counts as too
	// busy for niceties.
	busyDelay = 250 * time.Millisecond
	// busyGroups is how many awake groups are enough to do: each transfer, and each election, wakes
	// one more.
	busyGroups = host.BusyGroups
	// abdicationsPerCheck bounds the leaderships that an unfit node gives away in a second.
	abdicationsPerCheck = 1000
)

// transfers is when a group may be handed over again. Of the preference goroutine alone; groups
// that are not misplaced any more are forgotten when their time is over.
type transfers map[*hosted.Replica]*transferState

type transferState struct {
	after   time.Time
	backoff time.Duration
}

// preferLeaders hands leaderships to the replicas that are preferred. It looks only at the groups
// that are led here and preferred elsewhere: after a restart of another node those that this one
// took over, and then none.
func (n *Node) preferLeaders(ctx context.Context) {
	if task.Pause(ctx, n.config.SettleTime) != nil {
		return
	}
	tried := make(transfers)
	for {
		began := time.Now()
		if n.health.Fit() {
			n.preferRound(ctx, tried)
		}
		tried.prune(time.Now())
		if task.Pause(ctx, max(0, n.config.PreferenceInterval-time.Since(began))) != nil {
			return
		}
	}
}

// preferRound hands over as many as the rate allows in one interval.
func (n *Node) preferRound(ctx context.Context, tried transfers) {
	budget := max(
		1,
		int(time.Duration(n.config.TransfersPerSecond)*n.config.PreferenceInterval/time.Second),
	)
	space := time.Second / time.Duration(n.config.TransfersPerSecond)
	now := time.Now()
	for _, h := range n.leaders.Misplaced() {
		if budget == 0 || ctx.Err() != nil || n.host.Awake() > busyGroups {
			return
		}
		state := tried[h]
		if state != nil && now.Before(state.after) {
			continue
		}
		to, at := h.Preferred()
		if to == 0 || h.Removed.Load() || n.host.PeerDown(at) || !n.host.Clocks().Agrees(at) ||
			n.host.PeerWithoutRoom(at) || n.host.PeerLeaderAverse(at) {
			continue
		}
		handed, busy := n.handOver(ctx, h, to)
		if busy {
			return
		}
		if !handed {
			continue
		}
		if state == nil {
			state = &transferState{backoff: transferBackoff}
			tried[h] = state
		} else {
			state.backoff = min(2*state.backoff, maxTransferBackoff)
		}
		state.after = now.Add(state.backoff)
		budget--
		if task.Pause(ctx, space) != nil {
			return
		}
	}
}

// prune forgets what is long over.
func (t transfers) prune(now time.Time) {
	for h, state := range t {
		if now.Sub(state.after) > maxTransferBackoff || h.Removed.Load() {
			delete(t, h)
		}
	}
}

// handOver transfers a leadership if the replica is there and has everything that is applied here.
// busy says that the answer took so long that this node has other worries.
func (n *Node) handOver(ctx context.Context, h *hosted.Replica, to keys.ReplicaID) (handed,
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
	timer := time.NewTimer(4 * busyDelay)
	defer timer.Stop()
	select {
	case able := <-answer:
		if time.Since(asked) > busyDelay {
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
	n.metrics.transfers.Inc()
	h.Replica.TransferLeader(to)
	return true, false
}

// abdicate gives leaderships away, if another replica can take them: this node does not serve. What
// it served is not closed: its clock may be the reason, and must not push those of the others, or
// its disk, which takes no entry. So the others wait for the end of the leases.
func (n *Node) abdicate() {
	led := n.leaders.Led()
	for _, h := range led[:min(len(led), abdicationsPerCheck)] {
		n.giveAway(h, func(uint64) int { return 1 }, host.AnyLag, func(to keys.ReplicaID) {
			_, term := h.Group.Leader()
			h.Group.Resign(term, to)
		})
	}
}

// giveAway has a leadership transferred to the replica that has most, of those that are there, lack
// no more than lag entries, and are on the hosts that rank highest (host.Group.Successor).
func (n *Node) giveAway(h *hosted.Replica, rank func(host uint64) int, lag uint64,
	transfer func(keys.ReplicaID)) {
	h.Group.Successor(rank, lag, func(best keys.ReplicaID, _ uint64) {
		if best != 0 {
			n.metrics.transfers.Inc()
			transfer(best)
		}
	})
}

// Drain hands over all that this node leads, while it goes on serving, and returns how many
// leaderships are left: see host.Host.Drain. Close may follow.
func (n *Node) Drain(ctx context.Context) (left int) {
	return n.host.Drain(ctx, func(g *host.Group, term uint64, to keys.ReplicaID) {
		h := n.replicas.Get(g.ID())
		if h == nil {
			return
		}
		n.metrics.transfers.Inc()
		if n.health.Fit() {
			h.Replica.TransferLeader(to)
		} else {
			g.Resign(term, to) // as in abdicate
		}
	})
}
