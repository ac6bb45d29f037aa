package host

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
)

// A data node's followers apply later (Config.FollowersApplyAfter). Hardly a request waits for what
// they apply: of reads from what is just committed they answer those that a leader has admitted,
// and these wait for so much longer. A follower learns of a commit with the entries that come next,
// so if it applied at once, it would do so while a client waits for those. Applied a little later,
// the entries of several messages are one batch of the state database.
//
// Leaders apply at once, and so does a replica that comes to lead: the first entry of its
// leadership is behind what it has left for later. What requests wait for on followers too is not
// left for later (group.Urgent).

const (
	// maxDelayedBytes is how many bytes of one group's entries may wait.
	maxDelayedBytes = 64 << 10
	// maxBatchBytes is the size from which on no further entries are added to a batch.
	maxBatchBytes = 64 << 10
)

// enqueueDelayed appends a task of entries that no request waits for; the caller has counted it in
// g.work.
func (g *Group) enqueueDelayed(t task) {
	q := &g.tasks
	q.mu.Lock()
	q.tasks = append(q.tasks, t)
	q.delayedBytes += entryBytes(t.apply)
	start, list := false, false
	if q.delayedBytes > maxDelayedBytes {
		start = q.startLocked()
	} else if !q.running {
		list, q.listed = !q.listed, true
	}
	q.mu.Unlock()
	switch {
	case start:
		g.host.apply.enqueue(g)
	case list:
		g.host.apply.enqueueDelayed(g)
	}
}

// urgent says whether requests may wait for what followers apply.
func (g *Group) urgent(m *raftpb.Message) bool {
	machine, ok := g.machine.(group.Urgent)
	return ok && slices.ContainsFunc(m.Entries, func(e *raftpb.Entry) bool {
		return machine.Urgent(e.GetData())
	})
}

// entryBytes is about how much memory the entries of a message take.
func entryBytes(m *raftpb.Message) int {
	n := 0
	for _, e := range m.Entries {
		n += 64 + len(e.GetData())
	}
	return n
}

// enqueueDelayed has the timer look at a group.
func (p *applyPool) enqueueDelayed(g *Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delayed = append(p.delayed, g)
	switch {
	case len(p.delayed) > 1 || p.stopped:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.host.config.FollowersApplyAfter, p.sweep)
	default:
		p.timer.Reset(p.host.config.FollowersApplyAfter)
	}
}

// sweep queues the groups whose tasks have waited. The timer calls it.
func (p *applyPool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return // stop sees to them
	}
	for _, g := range p.delayed {
		q := &g.tasks
		q.mu.Lock()
		q.listed = false
		if len(q.tasks) > 0 && !q.running {
			q.running, q.lazy = true, true
			p.lazy = append(p.lazy, g)
		}
		q.mu.Unlock()
	}
	clear(p.delayed)
	p.delayed = p.delayed[:0]
	p.wake.Broadcast()
}

// hurry has the pool run what is delayed.
func (g *Group) hurry() {
	q := &g.tasks
	q.mu.Lock()
	start := len(q.tasks) > 0 && q.startLocked()
	q.mu.Unlock()
	if start {
		g.host.apply.enqueue(g)
	}
}

// lazyShare is how many groups are taken from the queue, while it is not empty, for one that no
// request waits for.
const lazyShare = 4

// takeLocked takes the next group: of those that a request may wait for, mostly, if there are any.
// It returns nil if it was one that has changed over to those. Called with p.mu held; a group's
// queue has its own lock, below p.mu.
func (p *applyPool) takeLocked() *Group {
	p.taken++
	if len(p.queue) > 0 && (len(p.lazy) == 0 || p.taken%lazyShare != 0) {
		return first(&p.queue)
	}
	if g := first(&p.lazy); g.tasks.beginLazy() {
		return g
	}
	return nil
}

// beginLazy says whether the queue is still one that no request waits for; from now on it is not.
func (q *taskQueue) beginLazy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	lazy := q.lazy
	q.lazy = false
	return lazy
}

// first takes the first of some groups.
func first(groups *[]*Group) *Group {
	g := (*groups)[0]
	(*groups)[0] = nil
	*groups = (*groups)[1:]
	return g
}
