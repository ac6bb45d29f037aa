package watchdog

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Never is a deadline that does not come.
const Never = math.MaxInt64

// action is what a watchdog has to do.
type action uint8

const (
	wait action = iota
	// terminate: SIGTERM to the group.
	terminate
	// kill: SIGKILL to the group, and end.
	kill
	// leave: the command is gone; the watchdog leaves the group, and looks whether it is empty.
	leave
	// finish: end, and leave the group alone.
	finish
)

// watch is what a watchdog knows. It has no clock, and does nothing by itself.
type watch struct {
	// patience is how long the command has from SIGTERM to SIGKILL.
	patience time.Duration
	// deadline is when the command must have ended, by Clock.
	deadline int64
	// killAt is when the command is killed that was told to end; Never: it was not.
	killAt int64
	// overdue says that the command was told to end because the deadline was near.
	overdue bool
	// gone says that the command itself has ended.
	gone bool
}

func newWatch(patience time.Duration, deadline int64) *watch {
	return &watch{patience: patience, deadline: deadline, killAt: Never}
}

// tell takes a line that the starting process has written. pid is the process of the command, if
// the line says so. A line that makes no sense is left alone: versions are the same.
func (w *watch) tell(now int64, line string) (pid int, do action) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "until":
		if deadline, err := strconv.ParseInt(rest, 10, 64); err == nil {
			w.deadline = deadline
		}
	case "started":
		pid, _ = strconv.Atoi(rest)
	case "end":
		return 0, w.end(now)
	case "gone":
		w.gone = true
		if w.killAt == Never {
			return 0, finish
		}
		return 0, leave
	}
	return pid, wait
}

// end begins the end of the command.
func (w *watch) end(now int64) action {
	if w.killAt != Never {
		return wait
	}
	w.killAt = now + int64(w.patience)
	if w.patience <= 0 {
		return kill
	}
	return terminate
}

// look says what is to be done at a moment.
func (w *watch) look(now int64) action {
	switch {
	case now >= w.deadline:
		w.overdue = w.overdue || w.killAt == Never
		return kill
	case now >= w.killAt:
		return kill
	case w.killAt == Never && w.deadline-now <= int64(w.patience):
		w.overdue = true
		return w.end(now)
	}
	return wait
}

// next is how long nothing has to be done, if nothing is told.
func (w *watch) next(now int64) time.Duration {
	at := min(w.deadline, w.killAt)
	if w.killAt == Never && w.deadline != Never {
		at = w.deadline - int64(w.patience)
	}
	if at == Never {
		return math.MaxInt64
	}
	return time.Duration(max(0, at-now))
}
