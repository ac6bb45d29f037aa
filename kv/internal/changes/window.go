package changes

import (
	"errors"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Keeper keeps changes until a progress covers them, in bounded room. The goroutine of the feed
// calls its methods.
type Keeper interface {
	// Fits reports whether there is room for more changes, by number and bytes of keys and values.
	Fits(changes, bytes int) (bool, error)
	// Share returns how much is kept, relative to what is cheap to keep; it may be above 1.
	Share() float64
	// Forget makes room. It keeps changes of the lowest timestamps, and none above most; next is
	// the timestamp of a change that is about to come. It returns the timestamp up to which it has
	// kept everything, and whether it has forgotten anything. Forgotten changes are passed on
	// again.
	Forget(next, most hlc.Timestamp) (upto hlc.Timestamp, forgot bool, err error)
	// Full returns the error for changes at one timestamp that do not fit.
	Full(at hlc.Timestamp) error
}

// A feed whose changes wait for a progress advances from window to window.
//
// There is no progress before every part has reached it. So no part is asked for changes above the
// window's end, which lies one step above the lowest timestamp of all parts; a part that has
// reached the end waits for the others. If the end lies above every timestamp that a partition is
// known to have closed, there is no bound: the feed follows the present.
//
// The right length of a step depends on how much was written in it, which is not known before. It
// begins with firstStep. If little had to be kept in a window (Keeper.Share), the next step is
// longer; if much, shorter. If a window does not fit, the changes above the lower half of those
// that are kept are forgotten, the window ends there, and parts that were further go back to that
// timestamp: their changes are asked for again, in the next window. So a feed reaches the present
// however far it is behind, as long as the changes at one timestamp fit.

const (
	firstStep = time.Minute
	// mostStep is 36 years: a feed from 1970 on soon reaches the first changes.
	mostStep = time.Duration(1 << 60)
	// After a window with a share up to little the step is four times as long; up to twice that,
	// twice as long; above half it is shortened so that the share would be half. If the share is
	// above some, progress is reported as soon as the window is over, and not at its time.
	half   = 1.0 / 2
	little = 1.0 / 8
	some   = 1.0 / 16
	// lookEvery is the least time between two looks at the progress of the parts.
	lookEvery = 20 * time.Millisecond
)

// errForgotten: the answer can no longer be used (stale).
var errForgotten = errors.New("what lies before the answer has been forgotten")

// window bounds what a feed asks for.
type window struct {
	step time.Duration
	// base is the lowest timestamp of all parts when end was set.
	base, end hlc.Timestamp
	// goal is the end of the window by which the step is judged next. most is the largest share
	// meanwhile; limited is set if a part was kept from being asked for changes above the end.
	goal    hlc.Timestamp
	most    float64
	limited bool
	// newest is the highest timestamp that a partition is known to have closed.
	newest hlc.Timestamp
	// waiting are the parts that have reached the end, by their first keys.
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

// bound returns the timestamp up to which a part with a timestamp may be asked; zero: no bound.
// waits is set if the part has reached the end.
func (w *window) bound(resolved hlc.Timestamp) (upto hlc.Timestamp, waits bool) {
	if w.newest.LessEq(w.end) {
		return hlc.Timestamp{}, false
	}
	w.limited = true
	return w.end, w.end.LessEq(resolved)
}

// shrink sets the end of the window to a timestamp.
func (w *window) shrink(to hlc.Timestamp) {
	w.step = time.Duration(max(1, to.Wall-w.base.Wall))
	w.end, w.goal, w.most, w.limited = to, to, 0, true
}

// look advances the window, if the parts have advanced.
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

// moveOn begins the window above a timestamp that all parts have reached.
func (f *feed) moveOn(least hlc.Timestamp, now time.Time) {
	f.window.begin(least)
	for start := range f.window.waiting {
		f.queue.add([]byte(start), now, 0)
	}
	clear(f.window.waiting)
}

// stale reports that the question of an answer began above the present timestamp of its part:
// changes in between have been forgotten.
func (f *feed) stale(a *answered) bool {
	p := f.frontier.At(a.question.Span.Start)
	return p.Resolved.Less(a.question.After) || p.Head.Less(a.question.Head)
}

// makeRoom makes room for the changes of an answer, or cuts the answer. more is false if emit
// returned false. All answers before it have been passed on, and the frontier does not include it
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
		// INVARIANT: kept changes, the answer's changes and the window's end lie above least.
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

// cut removes the changes above a timestamp, and returns whether there were any.
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

// lowest returns the lowest timestamp of changes.
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
