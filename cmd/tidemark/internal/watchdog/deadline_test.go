package watchdog

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is told when, as long as the command is not gone: it is killed when the deadline that
// was told last has come, or the patience is over since it was told to end; it is told to end once,
// and before that; and without a deadline, an end or a silence it is left alone.
func TestWatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		patience := time.Duration(rapid.Int64Range(0, 30).Draw(t, "patience"))
		now, deadline := int64(1000), int64(Never)
		if rapid.Bool().Draw(t, "a deadline") {
			deadline = now + rapid.Int64Range(0, 100).Draw(t, "left")
		}
		w := newWatch(patience, deadline)
		ended := int64(Never) // when it was told to end
		do := func(a action) (killed bool) {
			switch a {
			case terminate:
				if ended != Never {
					t.Fatal("it was told to end twice")
				}
				ended = now
			case kill:
				if now < deadline && (patience > 0 || ended != Never) &&
					(ended == Never || now < ended+int64(patience)) {
					t.Fatalf("killed at %d, the deadline is %d, and it was told to end at %d", now, deadline,
						ended)
				}
				return true
			}
			return false
		}
		for range 50 {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				if deadline != Never {
					deadline = max(deadline, now+rapid.Int64Range(0, 100).Draw(t, "left"))
					if pid, a := w.tell(now, fmt.Sprint("until ", deadline)); pid != 0 || a != wait {
						t.Fatal(pid, a)
					}
				}
			case 1:
				if rapid.IntRange(0, 9).Draw(t, "end") == 0 {
					if _, a := w.tell(now, "end"); do(a) {
						return
					}
				}
			case 2:
				if pid, a := w.tell(now, "started 17"); pid != 17 || a != wait {
					t.Fatal(pid, a)
				}
			default:
				// It is looked no later than said.
				step := min(int64(w.next(now)), 10)
				now += rapid.Int64Range(0, step).Draw(t, "step")
				if do(w.look(now)) {
					return
				}
				if now >= deadline || ended != Never && now >= ended+int64(patience) {
					t.Fatalf("alive at %d, the deadline is %d, and it was told to end at %d", now, deadline,
						ended)
				}
				if deadline-now <= int64(patience) && ended == Never {
					t.Fatalf("not told to end at %d, with a deadline of %d", now, deadline)
				}
			}
		}
	})
}

// When the command is gone by itself, what it has left behind is left alone; when it was told to
// end, what it has started has the rest of the patience.
func TestWatchTheCommandIsGone(t *testing.T) {
	w := newWatch(10, 100)
	if _, a := w.tell(50, "gone"); a != finish {
		t.Error(a)
	}
	w = newWatch(10, 100)
	if _, a := w.tell(50, "end"); a != terminate {
		t.Error(a)
	}
	if _, a := w.tell(55, "gone"); a != leave {
		t.Error(a)
	}
	if a := w.look(59); a != wait {
		t.Error(a)
	}
	if a := w.look(60); a != kill || w.overdue {
		t.Error(a, w.overdue)
	}
	w = newWatch(10, 100)
	if a := w.look(90); a != terminate || !w.overdue {
		t.Error(a, w.overdue)
	}
	if _, a := w.tell(95, "until 200"); a != wait || w.look(99) != wait || w.look(100) != kill {
		t.Error("what was told to end is to end, also if the deadline is later now")
	}
}
