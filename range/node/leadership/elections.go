package leadership

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
)

const (
	// campaignPeriod is the time between two bursts of campaigns.
	campaignPeriod = 50 * time.Millisecond
	// patience is how long a group without a leader is left to its preferred replica.
	patience = 5 * time.Second
)

// Elections holds the groups without a known leader, each with the time of its next attempt. An
// awake group elects by itself; Elections is for sleeping groups, which all groups are after a
// restart.
type Elections struct {
	node *hosted.Node
	tick time.Duration
	// perSecond bounds the elections that are started.
	perSecond int
	campaigns prometheus.Counter
	wake      task.Signal

	mu struct {
		sync.Mutex
		queue dueHeap
	}
}

type dueGroup struct {
	h   *hosted.Replica
	due int64 // of Node.now
}

type dueHeap []dueGroup

func (q dueHeap) Len() int           { return len(q) }
func (q dueHeap) Less(i, j int) bool { return q[i].due < q[j].due }
func (q dueHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueHeap) Push(x any)        { *q = append(*q, x.(dueGroup)) }
func (q *dueHeap) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = dueGroup{}
	*q = old[:len(old)-1]
	return last
}

// NewElections makes Elections for a node whose host has that tick. It starts at most perSecond
// elections.
func NewElections(n *hosted.Node, tick time.Duration, perSecond int) *Elections {
	return &Elections{node: n, tick: tick, perSecond: perSecond, wake: task.NewSignal(),
		campaigns: n.Metrics.Counter("campaigns_total",
			"Times that a group without a leader was woken.")}
}

// AfterStart schedules the groups that sleep and know no leader, which is all of them: first those
// that prefer this node, once it may vote, then the others.
func (e *Elections) AfterStart(electionTimeout time.Duration) {
	for _, h := range e.node.Replicas.All() {
		if h.PrefersSelf() {
			e.add(h, int64(electionTimeout)+e.node.Jitter(electionTimeout)/4)
		} else {
			e.AddLater(h)
		}
	}
}

// Add schedules a group for now.
func (e *Elections) Add(h *hosted.Replica) { e.add(h, 0) }

// AddLater schedules a group for when its preferred replica has had time to lead.
func (e *Elections) AddLater(h *hosted.Replica) {
	e.add(h,
		int64(patience)+e.node.Jitter(patience))
}

// Campaign makes a group's replica here campaign, even if the group is awake.
func (e *Elections) Campaign(h *hosted.Replica) {
	e.campaigns.Inc()
	h.Group.CampaignAgain()
}

// add schedules a group after in nanoseconds, unless it is scheduled already.
func (e *Elections) add(h *hosted.Replica, in int64) {
	if !h.Lists.Elections.CompareAndSwap(false, true) {
		return
	}
	e.mu.Lock()
	heap.Push(&e.mu.queue, dueGroup{h, e.node.Now() + in})
	first := e.mu.queue[0].h == h
	e.mu.Unlock()
	if first {
		e.wake.Send()
	}
}

// take removes up to limit groups that are due. If it finds none, wait is the time until the next
// one, unless some are added.
func (e *Elections) take(now int64, limit int, into []*hosted.Replica) (due []*hosted.Replica,
	wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.mu.queue) > 0 && len(into) < limit && e.mu.queue[0].due <= now {
		into = append(into, heap.Pop(&e.mu.queue).(dueGroup).h)
	}
	if len(e.mu.queue) == 0 {
		e.mu.queue = nil
		return into, time.Hour
	}
	return into, max(campaignPeriod, time.Duration(e.mu.queue[0].due-now))
}

// Run starts elections until the context ends.
func (e *Elections) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	limit := max(1, int(time.Duration(e.perSecond)*campaignPeriod/time.Second))
	var batch []*hosted.Replica
	for {
		var wait time.Duration
		batch, wait = e.take(e.node.Now(), limit, batch[:0])
		for _, h := range batch {
			e.look(h)
		}
		if len(batch) > 0 {
			// INVARIANT: the pace is kept, whatever is added meanwhile. Groups that come one by
			// one, like those of a new keyspace, leave the queue empty again and again.
			clear(batch)
			timer.Reset(campaignPeriod)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-e.wake:
		case <-ctx.Done():
			return
		}
	}
}

// look starts an election if there is still no leader, and schedules a check of the outcome.
func (e *Elections) look(h *hosted.Replica) {
	n := e.node
	h.Lists.Elections.Store(false)
	if h.Removed.Load() || h.Group.Failed() != nil {
		return
	}
	if leader, _ := h.Group.Leader(); leader != 0 {
		return
	}
	// While very many groups are awake, most of those in this queue will hear of a leader without
	// being woken, and campaigns of those that are to lead here would only delay the elections that
	// are under way. So a new keyspace of thousands of partitions elects its leaders as fast as the
	// machines can, and not faster. But the awake groups may have no quorum, and then they never
	// sleep, so a few groups of the queue have their turn all the same.
	if n.Host.Awake() > BusyGroups && n.Random()%10 != 0 {
		wait := time.Second
		if h.PrefersSelf() {
			wait = e.tick
		}
		e.add(h, int64(wait)+n.Jitter(wait))
		return
	}
	// A node that must not serve leaves leaderships to others. A comparison of clocks after a
	// start, or after a jump, is soon done.
	if n.Health.ClockRefused() {
		e.add(h, int64(e.tick)+n.Jitter(e.tick))
		return
	}
	if n.Health.Fit() && !n.Host.Leaving() {
		e.campaigns.Inc()
		// Wake campaigns if the group sleeps and knows no leader; with PreVote this disturbs no
		// leader.
		h.Group.Wake()
	}
	e.AddLater(h)
}
