package host

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// task is a piece of work in a group's apply queue. Exactly one field is set.
type task struct {
	apply   *raftpb.Message
	install *installation
	// run is anything that must not run beside applying.
	run func()
}

// taskQueue is a group's apply queue. Raft bounds how much of it can be entries.
type taskQueue struct {
	mu    sync.Mutex
	tasks []task
	// running: a worker has the group, or it is in one of the pool's queues. Otherwise the tasks,
	// if there are any, are for later.
	running bool
	// lazy: it is in the queue that no request waits for.
	lazy bool
	// urgent: there is a task that must not be delayed. delayedBytes counts the bytes of the others.
	// listed: the pool's timer will look at the group.
	urgent       bool
	delayedBytes int
	listed       bool
	// broken: a task failed, and none must run after it. Of the worker that runs the tasks.
	broken bool
}

// enqueueTask appends a task; the caller has counted it in g.work.
func (g *Group) enqueueTask(t task) {
	q := &g.tasks
	q.mu.Lock()
	q.tasks = append(q.tasks, t)
	q.urgent = true
	start := q.startLocked()
	q.mu.Unlock()
	if start {
		g.host.apply.enqueue(g)
	}
}

// startLocked says that the group is to be put into the queue that requests may wait for.
func (q *taskQueue) startLocked() bool {
	start := !q.running || q.lazy
	q.running, q.lazy = true, false
	return start
}

// applyPool is a fixed number of workers; a group is with at most one of them.
type applyPool struct {
	host    *Host
	workers int

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []*Group
	stopped bool
	// delayed are groups with tasks that no request waits for, until the timer goes off; lazy those
	// for which it has. taken counts groups.
	delayed, lazy []*Group
	timer         *time.Timer
	taken         int

	running sync.WaitGroup
}

func newApplyPool(h *Host, workers int) *applyPool {
	p := &applyPool{host: h, workers: workers}
	p.wake = sync.NewCond(&p.mu)
	return p
}

func (p *applyPool) start() {
	for range p.workers {
		p.running.Add(1)
		go p.run()
	}
}

func (p *applyPool) enqueue(g *Group) {
	p.mu.Lock()
	p.queue = append(p.queue, g)
	p.mu.Unlock()
	p.wake.Signal()
}

func (p *applyPool) stop() {
	p.mu.Lock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.wake.Broadcast()
	p.running.Wait()
	p.mu.Lock()
	left := slices.Concat(p.queue, p.lazy, p.delayed)
	p.queue, p.lazy, p.delayed = nil, nil, nil
	p.mu.Unlock()
	for _, g := range left {
		g.dropTasks()
	}
}

func (p *applyPool) run() {
	defer p.running.Done()
	var scratch []group.Entry
	for {
		p.mu.Lock()
		for len(p.queue)+len(p.lazy) == 0 && !p.stopped {
			p.wake.Wait()
		}
		if p.stopped {
			p.mu.Unlock()
			return
		}
		g := p.takeLocked()
		p.mu.Unlock()
		if g != nil {
			scratch = g.runTasks(scratch)
		}
	}
}

// runTasks runs what is queued now; what comes meanwhile goes to the end of the pool's queue, so
// that a busy group does not keep a worker from the others.
func (g *Group) runTasks(scratch []group.Entry) []group.Entry {
	g.tasks.mu.Lock()
	tasks := g.tasks.tasks
	g.tasks.tasks, g.tasks.delayedBytes, g.tasks.urgent = nil, 0, false
	g.tasks.mu.Unlock()
	for len(tasks) > 0 {
		n := together(tasks)
		scratch = g.runTasksTogether(tasks[:n], scratch)
		g.work.Add(-n)
		tasks = tasks[n:]
	}
	q := &g.tasks
	q.mu.Lock()
	more := q.urgent || q.delayedBytes > maxDelayedBytes
	q.running = more
	list := len(q.tasks) > 0 && !more && !q.listed
	q.listed = q.listed || list
	q.mu.Unlock()
	switch {
	case more:
		g.host.apply.enqueue(g)
	case list:
		g.host.apply.enqueueDelayed(g)
	}
	return scratch
}

// dropTasks forgets what was queued when the host closed.
func (g *Group) dropTasks() {
	g.tasks.mu.Lock()
	tasks := g.tasks.tasks
	g.tasks.tasks = nil
	g.tasks.mu.Unlock()
	for _, t := range tasks {
		if t.install != nil {
			t.install.staged.Discard()
		}
		g.work.Done()
	}
}

// together is how many of the first tasks are run as one: those that apply entries, until it is
// enough for one batch. On a leader that is what has come while the workers were busy: one batch of
// it is ready earlier than the last of several, and hardly later than the first.
func together(tasks []task) int {
	n, bytes := 0, 0
	for n < len(tasks) && tasks[n].apply != nil && bytes < maxBatchBytes {
		bytes += entryBytes(tasks[n].apply)
		n++
	}
	return max(1, n)
}

// runTasksTogether runs a task, or several that apply entries.
func (g *Group) runTasksTogether(tasks []task, scratch []group.Entry) []group.Entry {
	defer func() {
		if p := recover(); p != nil {
			g.failTask(panicked("applying", p))
		}
	}()
	t := &tasks[0]
	if g.tasks.broken || g.Failed() != nil {
		if t.install != nil {
			t.install.staged.Discard()
		}
		return scratch
	}
	switch {
	case t.apply != nil:
		return g.applyEntries(tasks, scratch)
	case t.install != nil:
		g.runInstall(t.install)
	case t.run != nil:
		t.run()
	}
	return scratch
}

// failTask marks the group failed on the apply worker: what is queued behind the failed task is not
// run, even before the shard worker hears of it.
func (g *Group) failTask(err error) {
	g.tasks.broken = true
	g.failFrom(err)
}

// applyEntries applies what the MsgStorageApply of the tasks carry, and answers them.
func (g *Group) applyEntries(tasks []task, scratch []group.Entry) []group.Entry {
	scratch = scratch[:0]
	var changes []changed
	var last uint64
	for i, t := range tasks {
		for j, e := range t.apply.Entries {
			last = e.GetIndex()
			entry := group.Entry{Index: last, Term: e.GetTerm()}
			switch e.GetType() {
			case raftpb.EntryNormal:
				entry.Data = e.GetData()
			case raftpb.EntryConfChangeV2:
				data, err := group.DecodeChange(e)
				if err != nil {
					g.failTask(err)
					return scratch
				}
				entry.Data, entry.Change = data, true
			}
			scratch = append(scratch, entry)
			end := i == len(tasks)-1 && j == len(t.apply.Entries)-1
			if !end && !entry.Change {
				continue
			}
			// Whether a change was taken is seen when nothing was applied behind it.
			now, err := g.applyTogether(scratch)
			clear(scratch)
			scratch = scratch[:0]
			if err != nil {
				g.failTask(err)
				return scratch
			}
			if now != nil {
				changes = append(changes, changed{e, *now})
			}
		}
	}
	g.put(func(in *inbox) {
		in.changes = append(in.changes, changes...)
		for _, t := range tasks {
			in.local = append(in.local, t.apply.Responses...)
		}
	})
	g.storage.Release(last, false)
	return scratch
}

// applyTogether applies entries, of which the last may be a change of the configuration. It gives
// the configuration if that has changed.
func (g *Group) applyTogether(entries []group.Entry) (now *group.Configuration, err error) {
	start, last := time.Now(), &entries[len(entries)-1]
	if err := g.machine.Apply(entries); err != nil {
		return nil, fmt.Errorf("applying entries %d to %d: %w", entries[0].Index, last.Index, err)
	}
	g.host.metrics.applySeconds.Observe(time.Since(start).Seconds())
	g.host.metrics.appliedEntries.Add(float64(len(entries)))
	// One that was brought further meanwhile, to be merged into another one, has a later
	// configuration than this change makes. Nothing will come of this group any more.
	if at, _ := g.machine.Applied(); last.Change && at <= last.Index {
		c := g.machineConfiguration()
		if before := g.appliedState().Configuration; !c.Agrees(before) {
			now = &c
		}
	}
	g.setApplied(last.Index, last.Term, now)
	return now, nil
}

// appended is the context of an append: what the group sends when it is done.
type appended struct {
	group     *Group
	responses []*raftpb.Message
}

// onAppended runs on the log's append worker after each synced batch: peers are answered at once,
// with one message per host for the whole batch, and the shards are woken once each.
func (h *Host) onAppended(batch []*raftlog.Append, err error) {
	var out sends
	out.init()
	wake := make(map[*shard][]*Group, len(h.shards))
	for _, a := range batch {
		c := a.Context.(*appended)
		g := c.group
		if a.Snapshot.Index != 0 {
			g.replacing.Add(-1)
		}
		if err != nil {
			if err != raftlog.ErrClosed {
				g.failFrom(err)
			}
			g.work.Done()
			continue
		}
		var local []*raftpb.Message
		for _, m := range c.responses {
			if replicaID(m.GetTo()) == g.self {
				local = append(local, m)
			} else {
				out.add(g, g.core.Outgoing(m))
			}
		}
		if len(local) > 0 {
			g.inbox.mu.Lock()
			if !g.inbox.stopped {
				g.inbox.local = append(g.inbox.local, local...)
				if !g.inbox.queued {
					g.inbox.queued = true
					wake[g.shard] = append(wake[g.shard], g)
				}
			}
			g.inbox.mu.Unlock()
		}
		g.work.Done()
	}
	if err == nil && h.transport != nil {
		out.flush(h)
	}
	for s, groups := range wake {
		s.enqueue(groups...)
	}
}
