package eval

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
	// GroupLine is how long a line has to be, groupMost how long a proposal gathers at most.
	GroupLine = 8
	GroupMost = 4 * time.Millisecond
)

// left is for how long the proposal is still to gather. Half of a line is enough: the rest have to
// wait for these.
func (e *evaluation) left() time.Duration {
	p := e.proposal
	if e.line < GroupLine || e.plain || len(p.Answers) >= e.line/2 || len(p.Waiters) > 0 {
		return 0
	}
	return GroupMost - time.Since(e.opened)
}

// waitsLocked says that the open proposal is not to be proposed yet: there is no room for it, or it
// gathers. Then the evaluator is called when that is over, at the latest.
func (r *Evaluator) waitsLocked(e *evaluation) bool {
	if len(r.Mu.InFlight) >= r.Node.MaxInFlight {
		return true
	}
	if r.queue.Len() > 0 && !e.takesLocked(r.queue.First()) {
		return false // that would have to wait
	}
	left := e.left()
	if left <= 0 {
		return false
	}
	if !e.timed {
		e.timed = true
		time.AfterFunc(left, func() {
			if r.Enter() {
				r.Kick(false)
				r.Exit()
			}
		})
	}
	return true
}

// takesLocked says that a write can be evaluated on top of what is in the open proposal.
func (e *evaluation) takesLocked(w *write) bool {
	return !w.alone() && e.size+w.size <= e.r.Node.MaxEntryBytes &&
		len(e.proposal.Answers) < openAnswers
}

// openAnswers bounds what one open proposal takes in.
const openAnswers = 1024
