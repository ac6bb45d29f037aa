package eval

import "time"

// How the commits of a line share an entry.
//
// Where many transactions wait for a lock, the lock goes from one to the next as fast as a client
// can read the key, compute and write: a commit hands the lock on when it has been evaluated, long
// before its entry is on the disks. With an entry for each commit or two, the entries take the
// processors that the clients need, and the line advances more slowly. So a proposal that has
// handed over a lock in a long line stays open for a while, although there is room for it in
// flight, and takes in the commits that come. They are answered later because of that, but
// transactions in a long line wait for many others anyway.

const (
	// GroupLine is the least length of a line whose commits are grouped; groupMost is the longest
	// time that a proposal gathers.
	GroupLine = 8
	GroupMost = 4 * time.Millisecond
)

// left returns for how long the proposal is still to gather. It ends when half of the line has
// come: the rest have to wait for these.
func (e *evaluation) left() time.Duration {
	p := e.proposal
	if e.line < GroupLine || e.plain || len(p.Answers) >= e.line/2 || len(p.Waiters) > 0 {
		return 0
	}
	return GroupMost - time.Since(e.opened)
}

// waitsLocked reports that the open proposal is not to be proposed yet: there is no room for it, or
// it gathers. Then the evaluator is called when that is over, at the latest.
func (r *Evaluator) waitsLocked(e *evaluation) bool {
	if len(r.Mu.InFlight) >= r.Node.MaxInFlight {
		return true
	}
	if r.queue.Len() > 0 && !e.takesLocked(r.queue.First()) {
		return false // that write would have to wait
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

// takesLocked reports that a write can be evaluated on top of the open proposal.
func (e *evaluation) takesLocked(w *write) bool {
	return !w.alone() && e.size+w.size <= e.r.Node.MaxEntryBytes &&
		len(e.proposal.Answers) < openAnswers
}

// openAnswers bounds the answers of one open proposal.
const openAnswers = 1024
