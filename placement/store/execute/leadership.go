package execute

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Leadership is the leader of the group as this member knows it.
type Leadership struct {
	Term uint64
	// Leader is 0 while no leader is known.
	Leader keys.ReplicaID
	// IsLeader is set if this member leads.
	IsLeader bool
	// Serving is set if this member leads, and has applied everything committed before its term.
	Serving bool
}

// Leadership returns the present leadership, and a channel that closes when it changes.
func (x *Executor) Leadership() (Leadership, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leadershipLocked(), x.mu.changed
}

func (x *Executor) leadershipLocked() Leadership {
	l := x.mu.leadership
	leads := l.IsLeader && !x.mu.closed
	return Leadership{Term: l.Term, Leader: l.Leader, IsLeader: leads,
		Serving: leads && x.mu.appliedTerm == l.Term}
}

// AwaitLeadership waits for a change of the leadership, for d at most. It returns ErrClosed after
// Stop.
func (x *Executor) AwaitLeadership(ctx context.Context, d time.Duration) error {
	_, changed := x.Leadership()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-x.ctx.Done():
		return command.ErrClosed
	case <-changed:
	case <-timer.C:
	}
	return nil
}

func (x *Executor) notifyLocked() {
	close(x.mu.changed)
	x.mu.changed = make(chan struct{})
}

// SetLeadership records a change of the group's leadership, and returns whether this member serves.
// Commands proposed here before may be lost.
func (x *Executor) SetLeadership(l group.Leadership) (serving bool) {
	x.mu.Lock()
	x.mu.leadership = l
	lost := x.takePendingLocked(func(p *pending) bool {
		return !p.survives && (!l.IsLeader || p.term != l.Term)
	})
	// INVARIANT: a leader remembers what it has proposed for other members for as long as its term
	// lasts, also while it wants to hand over its leadership: if nobody takes it, it leads on in the
	// same term, and the log has those commands.
	if x.mu.forwarded.term != l.Term {
		x.mu.forwarded.begin(l.Term)
	}
	if !l.IsLeader || x.mu.grouping.term != l.Term {
		for _, q := range x.mu.grouping.queue {
			x.mu.forwarded.notProposed(q.id)
		}
		x.mu.grouping = grouping{term: l.Term}
	}
	serving = x.leadershipLocked().Serving
	x.notifyLocked()
	x.mu.Unlock()
	x.lose(lost)
	return serving
}

// Answer is the result of an applied command.
type Answer struct {
	ID     ID
	Result *storepb.Result
}

// Applied is the effect of applied entries on the Executor.
type Applied struct {
	// Known are the commands whose outcome became known, in the order of the log. The caller passes
	// them to Settle once their effects are visible.
	Known []Known
	// Reserved is the number of bytes that the applied commands had reserved.
	Reserved uint64
	// Serving is the new Leadership.Serving; Changed is set if it has changed.
	Serving, Changed bool
}

// EntriesApplied records applied entries; term is the term of the last entry.
//
// INVARIANT: before this member shows as serving, all that its readers have to see is visible.
func (x *Executor) EntriesApplied(term uint64, answers []Answer) (a Applied) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, newTerm := x.leadershipLocked().Serving, term != x.mu.appliedTerm
	x.mu.appliedTerm = term
	a.Serving = x.leadershipLocked().Serving
	if a.Changed = a.Serving != before; a.Changed {
		x.notifyLocked()
	}
	for _, answer := range answers {
		if p := x.mu.pending[answer.ID]; p != nil { // else its caller knows it from the leader
			delete(x.mu.pending, answer.ID)
			a.Known = append(a.Known, Known{p, outcome{result: answer.Result}})
			a.Reserved += p.reserved
			p.reserved = 0
		}
	}
	if newTerm {
		a.Known = append(a.Known, x.supersededLocked()...)
	}
	return a
}

// EntriesSkipped records that a snapshot with this last term was installed. It is unknown which
// pending commands it contains.
func (x *Executor) EntriesSkipped(term uint64) {
	x.mu.Lock()
	x.mu.appliedTerm = term
	skipped := x.takePendingLocked(func(p *pending) bool { return p.survives && p.term <= term })
	x.mu.Unlock()
	var all []Known
	for _, p := range skipped {
		all = append(all, Known{p, outcome{err: fmt.Errorf(
			"%w: this member of %s was behind, and was sent the state as a whole",
			command.ErrOutcomeUnknown, x.config.Name)}})
	}
	x.Settle(all)
}

// Stop ends all calls, and waits for the goroutines. It may be called more than once.
func (x *Executor) Stop() {
	x.mu.Lock()
	if !x.mu.closed {
		x.mu.closed = true
		x.notifyLocked()
	}
	lost := x.takePendingLocked(func(*pending) bool { return true })
	x.mu.Unlock()
	x.lose(lost)
	x.cancel()
	x.running.Wait()
}
