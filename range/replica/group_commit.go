package replica

import "time"

// How the commits of a line share an entry.
//
// Where many transactions stand in line for a lock, it goes from one to the next as fast as the
// lock's key can be read, computed with and written by a client: a commit lets the next have it
// when it has been evaluated, long before its entry is on the disks. With an entry for each commit
// or two, the entries take the processors that the clients need, and the line goes slower, not
// faster. So a proposal that has handed over a lock in a long line stays open for a while, although
// there is room for it, and takes in the commits that come. They are answered later by that, but
// those in a long line wait for many others anyway.

const (
	// groupLine is how long a line has to be, groupMost how long a proposal gathers at most.
	groupLine = 8
	groupMost = 4 * time.Millisecond
)

// groupCommit says how long the proposal that is being filled has waited for more writes. The
// evaluating goroutine owns the struct; while no goroutine evaluates, Replica.mu guards it.
type groupCommit struct {
	opened time.Time
	// line is how many waited for the lock that was handed over, at most.
	line int
	// plain: there is something in it of others than transactions.
	plain bool
	// timed: a timer has been set for the end of gathering.
	timed bool
}

// left is for how long the proposal is still to gather. Half of a line is enough: the rest have to
// wait for these.
func (p *pendingEntry) left() time.Duration {
	if p.line < groupLine || p.plain || len(p.answers) >= p.line/2 || len(p.waiters) > 0 {
		return 0
	}
	return groupMost - time.Since(p.opened)
}

// waitsLocked says that the open proposal is not to be proposed yet: there is no room for it, or it
// gathers. Then the evaluator is called when that is over, at the latest.
func (r *Replica) waitsLocked(e *evaluation) bool {
	p := e.proposal
	if len(r.mu.inFlight) >= r.node.MaxInFlight {
		return true
	}
	if r.mu.queue.Len() > 0 && !e.takesLocked(r.mu.queue.First()) {
		return false // that would have to wait
	}
	left := p.left()
	if left <= 0 {
		return false
	}
	if !p.timed {
		p.timed = true
		time.AfterFunc(left, func() {
			if r.enter() {
				r.kick(false)
				r.exit()
			}
		})
	}
	return true
}
