package host

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/group"
)

// run is the worker.
func (s *shard) run() {
	defer s.host.tasks.Done()
	var batch []*Group
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for (s.busy || (len(s.ready) == 0 && !s.tick)) && !s.done {
			s.wake.Wait()
		}
		if s.done {
			return
		}
		tick := s.tick
		s.tick, s.busy = false, true
		batch, s.ready = s.ready, batch[:0]
		s.mu.Unlock()

		s.pass(batch, tick)
		clear(batch)
		if cap(batch) > 1<<14 {
			batch = nil
		}
		s.mu.Lock()
		s.busy = false
		if s.done {
			s.wake.Broadcast()
		}
	}
}

// pass is a pass of the worker: it steps all groups that have something to do, and then sends and
// submits what they produced.
func (s *shard) pass(batch []*Group, tick bool) {
	if tick {
		s.tickAwake()
	}
	for _, g := range batch {
		s.process(g, false)
	}
	s.own.flush(s.host)
}

// tickAwake ticks all awake groups, unless the last tick was less than an interval ago because the
// ticker was late then.
func (s *shard) tickAwake() {
	now, tick := s.host.now(), int64(s.host.config.Tick)
	if s.lastTick != 0 && now-s.lastTick < tick-tick/20 {
		return
	}
	s.lastTick = now
	s.sleepAfter = s.host.sleepAfter()
	for g := range s.awake {
		s.process(g, true)
	}
}

// sleepAfter returns after how many idle ticks a leader's group falls asleep. Heartbeats of very
// many awake groups could delay each other beyond the timeout, so the more groups are awake, the
// earlier they fall asleep.
func (h *Host) sleepAfter() int {
	if h.config.SleepAfter < 0 {
		return 0
	}
	ticks := max(1, int(h.config.SleepAfter/h.config.Tick))
	if times := int(h.awake.Load()) / manyAwake; times > 1 {
		ticks = max(min(ticks, 2), ticks/times)
	}
	return ticks
}

// manyAwake is the number of awake groups above which groups fall asleep earlier.
const manyAwake = 500

// process steps a group with the contents of its inbox, and collects what the group wants done.
func (s *shard) process(g *Group, tick bool) {
	var reads []func(error) // not begun yet
	defer func() {
		// Raft panics when an invariant is broken or its storage returns an error. The panic ends
		// this replica, not the process with its thousand others.
		if p := recover(); p != nil {
			g.fail(panicked("raft", p))
		}
		for _, done := range reads {
			done(ErrStopped)
		}
	}()
	got, stopped := g.inbox.take(tick)
	if stopped {
		return
	}
	reads = got.reads
	if g.restarted {
		withheld := s.host.votesWithheld(s.host.now())
		g.core.WithholdVotes(withheld)
		g.restarted = withheld
	}
	// Leaving elections to others makes sense only if there are other replicas.
	members := g.Configuration()
	g.core.SetLeaderAverse((s.host.avoidsLead() ||
		members.Joint() && !members.Electable(g.Self())) && s.host.peers.Willing(members))
	if err := g.takeChanges(got.changes); err != nil {
		g.fail(err)
		return
	}
	for _, m := range got.local {
		if err := g.core.StepLocal(m); err != nil {
			g.fail(fmt.Errorf("raft refused the answer of its own storage: %w", err))
			return
		}
	}
	for _, m := range got.messages {
		if why := g.core.Step(m); why != "" {
			s.host.refused(g, m, why)
			continue
		}
		g.closes.take(m)
	}
	if err := g.core.Broken(); err != nil {
		g.fail(err)
		return
	}
	// INVARIANT: proposals made before a hand-over was asked for are in the log before the
	// hand-over: a leader's last entry closes timestamps for all that it has served.
	g.propose(got.proposals)
	for _, op := range got.ops {
		op(g)
		if g.inbox.isStopped() {
			return
		}
	}
	if begun := reads; len(begun) > 0 {
		reads = nil
		g.reads.ask(g.core, begun)
	}
	if tick {
		g.core.Tick(s.sleepAfter, g.isAway)
		g.succeed()
		g.reads.expire(2 * s.host.config.ElectionTicks)
	}
	for g.core.Ready(s.host.now(), &s.output) {
		s.handle(g, &s.output)
		if g.inbox.isStopped() {
			return
		}
	}
	g.inbox.discardStaged(got.messages)
	s.setAwake(g, !g.core.Asleep())
}

// propose appends each run of proposals of the same term with one step. A dropped proposal stays
// dropped: its leadership is over, and the state machine is told of that.
func (g *Group) propose(proposals []proposal) {
	for len(proposals) > 0 {
		if p := &proposals[0]; p.change != nil {
			g.proposeChange(p)
			proposals = proposals[1:]
			continue
		}
		n := 1
		for n < len(proposals) && proposals[n].term == proposals[0].term && proposals[n].change == nil {
			n++
		}
		data := make([][]byte, n)
		for i, p := range proposals[:n] {
			data[i] = p.data
		}
		if err := g.core.Propose(proposals[0].term, data); err != nil {
			g.host.metrics.dropped.Add(float64(n))
		}
		proposals = proposals[n:]
	}
}

// proposeChange appends a change of the configuration. If Raft refuses the change, it is lost, and
// proposals evaluated after it must not be appended.
func (g *Group) proposeChange(p *proposal) {
	err := g.core.ProposeChange(p.term, p.data, *p.change)
	if err == nil {
		return
	}
	g.host.metrics.dropped.Inc()
	if l := g.core.Leadership(); l.IsLeader && l.Term == p.term {
		g.host.config.Logger.Warn("a change of a partition's replicas was not possible any more; its "+
			"leader hands over", "partition", g.ID(), "error", err)
		g.core.Resign(p.term, 0)
	}
}

// handle does what a group wants.
func (s *shard) handle(g *Group, out *group.Output) {
	if out.Leadership != nil {
		l := *out.Leadership
		if old := g.leadership.Load(); l.IsLeader != old.IsLeader {
			if l.IsLeader {
				s.host.metrics.elected.Inc()
			}
		}
		g.leadership.Store(&l)
		s.host.following.Changed(g.ID(), false)
		if !l.IsLeader {
			g.reads.fail(ErrNotLeader)
		}
		g.machine.LeadershipChanged(l)
	}
	if out.Committed > 0 {
		g.committed.Store(out.Committed)
	}
	g.closes.bring(out.Messages)
	for _, m := range out.Messages {
		s.out.sends.add(g, m)
	}
	for _, m := range out.Snapshots {
		s.host.snapshots.send(g, m)
	}
	if m := out.Append; m != nil && !s.append(g, m) {
		return
	}
	if m := out.Apply; m != nil {
		g.appended.Store(g.core.Appended())
		g.work.Add(1)
		if s.host.config.FollowersApplyAfter <= 0 || g.leadership.Load().IsLeader || g.applier.urgent(m) {
			g.applier.queue.Add(task{apply: m}) // a request may wait for it
		} else {
			g.applier.queue.AddDelayed(task{apply: m}, entryBytes(m))
		}
	}
	for _, r := range out.Reads {
		if g.reads.answered(r, &g.waiting) {
			// An apply worker checks whether the index is already applied, because running the
			// readers is not the shard worker's job.
			g.work.Add(1)
			g.applier.queue.Add(task{run: func() { g.waiting.advance(g.applied.Load()) }})
		}
	}
}
