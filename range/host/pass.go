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

// pass is the worker's: it steps all groups that have something to do, and then hands out what they
// want.
func (s *shard) pass(batch []*Group, tick bool) {
	if tick {
		s.tickAwake()
	}
	for _, g := range batch {
		s.process(g, false)
	}
	s.own.flush(s.host)
}

// tickAwake ticks all awake groups, unless the last time is less than an interval ago (the ticker
// was late then).
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

// sleepAfter is how many ticks a leader with nothing to do stays awake. Heartbeats of very many
// awake groups could keep each other from arriving in time, so the more there are, the earlier they
// sleep.
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

// manyAwake is from how many awake groups on they sleep earlier.
const manyAwake = 500

// process takes in what a group's inbox holds, and collects what the group wants.
func (s *shard) process(g *Group, tick bool) {
	var reads []func(error) // not begun yet
	defer func() {
		// Raft panics when an invariant is broken or its storage returns an error. That is the end
		// of this replica, not of the process with its thousand others.
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
	// To leave a lead to others makes sense only where there is another one.
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
	// INVARIANT: what was proposed before a hand-over was asked for is in the log before it: a
	// leader's last entry closes what it has served.
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

// propose appends runs of proposals of the same term with one step each. What is dropped stays
// dropped: the leadership it was made for is over, and the state machine hears of that.
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

// proposeChange appends a change of the configuration. One that Raft does not take is lost, and
// what is evaluated behind it must not be appended.
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
		g.work.Add(1)
		if s.host.config.FollowersApplyAfter <= 0 || g.leadership.Load().IsLeader || g.applier.urgent(m) {
			g.applier.queue.Add(task{apply: m}) // a request may wait for it
		} else {
			g.applier.queue.AddDelayed(task{apply: m}, entryBytes(m))
		}
	}
	for _, r := range out.Reads {
		if g.reads.answered(r, &g.waiting) {
			// An apply worker looks whether the index is applied already: the readers' work is not
			// this worker's.
			g.work.Add(1)
			g.applier.queue.Add(task{run: func() { g.waiting.advance(g.applied.Load()) }})
		}
	}
}
