package node

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
)

// campaignPeriod is the time between two bursts of campaigns.
const campaignPeriod = 50 * time.Millisecond

// elections are the groups without a known leader, each with the time at which to do something
// about it. An awake group elects by itself; what is here is for groups that sleep, all of them
// after a restart.
type elections struct {
	node *Node
	wake task.Signal

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

func (e *elections) init(n *Node) {
	e.node = n
	e.wake = task.NewSignal()
}

// add has a group looked at when it is due, unless it waits for that already.
func (e *elections) add(h *hosted.Replica, due int64) {
	if !h.Lists.Elections.CompareAndSwap(false, true) {
		return
	}
	e.mu.Lock()
	heap.Push(&e.mu.queue, dueGroup{h, due})
	first := e.mu.queue[0].h == h
	e.mu.Unlock()
	if first {
		e.wake.Send()
	}
}

// take removes up to limit groups that are due. If it finds none, wait is when to look again,
// unless some are added.
func (e *elections) take(now int64, limit int, into []*hosted.Replica) (due []*hosted.Replica,
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

func (e *elections) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	limit := max(1, int(time.Duration(e.node.config.CampaignsPerSecond)*campaignPeriod/time.Second))
	var batch []*hosted.Replica
	for {
		var wait time.Duration
		batch, wait = e.take(e.node.base.Now(), limit, batch[:0])
		for _, h := range batch {
			e.look(h)
		}
		if len(batch) > 0 {
			// INVARIANT: the pace is kept, whatever is added meanwhile. Groups that come one by one, as
			// those of a new keyspace do, leave the queue empty again and again.
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

// look starts an election if there is still no leader, and comes back to see what became of it.
func (e *elections) look(h *hosted.Replica) {
	n := e.node
	h.Lists.Elections.Store(false)
	if h.Removed.Load() || h.Group.Failed() != nil {
		return
	}
	if leader, _ := h.Group.Leader(); leader != 0 {
		return
	}
	// While very many groups are awake, most of those in this queue will hear of a leader without
	// being woken, and those that are to lead here would only keep the elections that are under way
	// from ending. So a new keyspace of thousands of partitions elects its leaders as fast as the
	// machines can, and not faster. But those may have no quorum, and then they never sleep, so a
	// few have their turn all the same.
	if n.host.Awake() > busyGroups && n.config.Random()%10 != 0 {
		wait := time.Second
		if h.PrefersSelf() {
			wait = n.config.Tick
		}
		e.add(h, n.base.Now()+int64(wait)+n.base.Jitter(wait))
		return
	}
	// A node that must not serve leaves the lead to others. One that compares clocks after its
	// start, or after a jump, is soon done.
	if n.health.ClockRefused() {
		e.add(h, n.base.Now()+int64(n.config.Tick)+n.base.Jitter(n.config.Tick))
		return
	}
	if n.health.Fit() && !n.host.Leaving() {
		n.metrics.campaigns.Inc()
		// Wake campaigns if the group sleeps and knows no leader; PreVote sees to it that this
		// disturbs no leader.
		h.Group.Wake()
	}
	e.add(h,
		n.base.Now()+int64(n.config.PatienceWithLeaders)+n.base.Jitter(n.config.PatienceWithLeaders))
}
