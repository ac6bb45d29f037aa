package changes

import (
	"errors"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Keeper keeps the changes that were handed on until a progress covers them, in bounded room. Its
// methods are called by the goroutine of the feed.
type Keeper interface {
	// Fits says whether there is room for so many more changes, with so many bytes of keys and values.
	Fits(changes, bytes int) (bool, error)
	// Share is how much is kept, as a share of what is cheap to keep: 1 is all of that, and there may
	// be more.
	Share() float64
	// Forget makes room. It keeps changes of the lowest timestamps, and none above most; next is the
	// timestamp of a change that is to come. It returns the timestamp up to which it has kept
	// everything, and whether it has forgotten anything. What it has forgotten is handed on again.
	Forget(next, most hlc.Timestamp) (upto hlc.Timestamp, forgot bool, err error)
	// Full is the error of changes at one timestamp for which there is not enough room.
	Full(at hlc.Timestamp) error
}

// A feed whose changes wait for a progress goes from window to window.
//
// Nothing can be told as progress before every part has come to it. So no part is asked for what
// lies above the window's end, which is the lowest timestamp to which a part has come and a step; a
// part that has come to the end waits for the others. Where the end lies above what any partition
// is known to have closed there is no bound: the feed follows the present.
//
// How long a step should be depends on how much was written in it, which is not known before. It
// begins with firstStep. After a window of which little had to be kept (Keeper.Share) the next one
// is longer, and after one of which much had to be, shorter. If the room is not enough for a
// window, what lies above the lower half of what is kept is forgotten, the window ends there, and
// parts that were further go back to that: what they had is asked for again, in the next window. So
// a feed comes to its end however far it is behind, as long as the changes at one timestamp have
// room.

const (
	firstStep = time.Minute
	// mostStep is 36 years: a feed from 1970 on is soon where there is something.
	mostStep = time.Duration(1 << 60)
	// After a window with a share of little the step is four times as long, with twice that, twice;
	// and with more than half as much shorter as makes it half. With more than some, progress is told
	// as soon as the window is over, and does not wait for its time.
	half   = 1.0 / 2
	little = 1.0 / 8
	some   = 1.0 / 16
	// lookEvery is the least time between two looks at how far the parts have come.
	lookEvery = 20 * time.Millisecond
)

// errForgotten: the answer is of no use any more (stale).
var errForgotten = errors.New("what lies before the answer has been forgotten")

// window is how far a feed asks.
type window struct {
	step time.Duration
	// base is the lowest timestamp to which a part had come when end was set.
	base, end hlc.Timestamp
	// goal is the end of the window by which the step is judged next. most is the largest share
	// meanwhile, and limited says that a part was kept from being asked for what lies above.
	goal    hlc.Timestamp
	most    float64
	limited bool
	// newest is up to where a partition is known to have closed.
	newest hlc.Timestamp
	// waiting are the parts that have come to the end, by the keys at which they begin.
	waiting map[string]struct{}
	looked  time.Time
}

func newWindow(after hlc.Timestamp) *window {
	w := &window{step: firstStep, waiting: make(map[string]struct{})}
	w.begin(after)
	return w
}

// begin begins the window above a timestamp.
func (w *window) begin(base hlc.Timestamp) {
	w.base = base
	w.end = hlc.Timestamp{Wall: math.MaxInt64}
	if base.Wall < math.MaxInt64-int64(w.step) {
		w.end = base.Add(w.step)
	}
	if w.goal.LessEq(base) {
		w.goal, w.most, w.limited = w.end, 0, false
	}
}

// judge sets the step after a window.
func (w *window) judge() {
	switch {
	case w.most > half:
		w.step = max(1, time.Duration(float64(w.step)*half/w.most))
	case !w.limited:
		w.step = firstStep
	case w.most <= little:
		w.step = min(mostStep, 4*w.step)
	case w.most <= 2*little:
		w.step = min(mostStep, 2*w.step)
	}
}

// bound is up to where a part may be asked that has come to a timestamp; zero: there is no bound.
// waits: it has come to the end.
func (w *window) bound(resolved hlc.Timestamp) (upto hlc.Timestamp, waits bool) {
	if w.newest.LessEq(w.end) {
		return hlc.Timestamp{}, false
	}
	w.limited = true
	return w.end, w.end.LessEq(resolved)
}

// shrink has the window end at a timestamp.
func (w *window) shrink(to hlc.Timestamp) {
	w.step = time.Duration(max(1, to.Wall-w.base.Wall))
	w.end, w.goal, w.most, w.limited = to, to, 0, true
}

// look moves the window on, if the parts have come further.
func (f *feed) look(now time.Time) {
	w := f.window
	if w == nil || now.Before(w.looked.Add(lookEvery)) {
		return
	}
	w.looked = now
	share, least := f.Keeper.Share(), f.frontier.Min()
	w.most = max(w.most, share)
	if least.LessEq(w.base) {
		return
	}
	if w.goal.LessEq(least) {
		w.judge()
		if share > some {
			f.next = now
		}
	}
	f.moveOn(least, now)
}

// moveOn begins the window above a timestamp to which all parts have come.
func (f *feed) moveOn(least hlc.Timestamp, now time.Time) {
	f.window.begin(least)
	for start := range f.window.waiting {
		f.queue.add([]byte(start), now, 0)
	}
	clear(f.window.waiting)
}

// stale says that an answer is to a question for what lies above what is known by now: what was
// between has been forgotten.
func (f *feed) stale(a *answered) bool {
	p := f.frontier.At(a.question.Span.Start)
	return p.Resolved.Less(a.question.After) || p.Head.Less(a.question.Head)
}

// makeRoom sees to it that the changes of an answer have room, or cuts the answer down. more is
// false if emit was. All answers before it have been handed on, and this one is not in the frontier
// yet.
func (f *feed) makeRoom(r *Answer, emit func(Event) bool) (more bool, err error) {
	for {
		bytes := 0
		for _, c := range r.Changes {
			bytes += len(c.Key) + len(c.Value)
		}
		fits, err := f.Keeper.Fits(len(r.Changes), bytes)
		if fits || err != nil {
			return true, err
		}
		least := f.frontier.Min()
		if f.window.base.Less(least) {
			f.moveOn(least, time.Now())
		}
		if f.told.Less(least) {
			if !f.tell(least, emit) {
				return false, nil
			}
			continue
		}
		// INVARIANT: what is kept, the answer's changes and the window's end lie above least.
		next := lowest(r.Changes)
		upto, forgot, err := f.Keeper.Forget(next, f.window.end)
		if err != nil {
			return true, err
		}
		f.frontier.Back(upto)
		f.window.shrink(upto)
		if !r.cut(upto) && !forgot {
			return true, f.Keeper.Full(next)
		}
	}
}

// cut leaves out what lies above a timestamp, and returns whether there was anything.
func (r *Answer) cut(upto hlc.Timestamp) bool {
	if r.Resolved.LessEq(upto) {
		return false
	}
	r.Resolved, r.ResumeVersion = upto, hlc.Min(r.ResumeVersion, upto)
	kept := make([]*kvpb.Change, 0, len(r.Changes))
	for _, c := range r.Changes {
		if version(c).LessEq(upto) {
			kept = append(kept, c)
		}
	}
	some := len(kept) < len(r.Changes)
	r.Changes = kept
	return some
}

// lowest is the lowest timestamp of changes.
func lowest(changes []*kvpb.Change) (least hlc.Timestamp) {
	for i, c := range changes {
		if at := version(c); i == 0 || at.Less(least) {
			least = at
		}
	}
	return least
}

func version(c *kvpb.Change) hlc.Timestamp {
	return hlc.Timestamp{Wall: int64(c.GetVersion().GetWall()), Logical: c.GetVersion().GetLogical()}
}
