package watchdog

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Never is a deadline that is never reached.
const Never = math.MaxInt64

// action is the next action of a watchdog.
type action uint8

const (
	wait action = iota
	// terminate: SIGTERM to the group.
	terminate
	// kill: SIGKILL to the group, and end.
	kill
	// leave: the command is gone. The watchdog leaves the group, and checks whether the group is
	// empty.
	leave
	// finish: end, and do not touch the group.
	finish
)

// watch is the state of a watchdog. It has no clock, and does nothing on its own.
type watch struct {
	// patience is the time between SIGTERM and SIGKILL.
	patience time.Duration
	// deadline is the time, by Clock, by which the command must have ended.
	deadline int64
	// killAt is the time at which a command that was told to end is killed. It is Never if the command
	// was not told to end.
	killAt int64
	// overdue: the command was told to end because the deadline was near.
	overdue bool
	// gone: the command itself has ended.
	gone bool
}

func newWatch(patience time.Duration, deadline int64) *watch {
	return &watch{patience: patience, deadline: deadline, killAt: Never}
}

// tell processes a line from the starting process. pid is the process of the command, if the line
// names it. An invalid line is ignored: both processes have the same version.
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

// end starts to end the command.
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

// look returns the action that is due at the time now.
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

// next returns the time until the next action, if the watchdog is told nothing.
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
