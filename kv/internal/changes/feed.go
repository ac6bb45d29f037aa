package changes

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/frontier"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// Budget bounds the answers that are on their way or have not been passed on, in bytes.
	Budget = 16 << 20
	// MaxAsked bounds the questions on their way.
	MaxAsked = 1024
	// Answers are at most mostAnswer bytes, and never bounded to less than leastAnswer.
	mostAnswer  = 1 << 20
	leastAnswer = Budget / MaxAsked

	// pause is the least time between two questions about a part if the first one has brought no
	// change. mostPause is the longest such pause, if the answer came at once: a leader reads its
	// latest state for it, at a cost for others. siblingPause is how long a part waits for a lower
	// part of its partition before the next look.
	pause        = 50 * time.Millisecond
	mostPause    = time.Second
	siblingPause = 50 * time.Millisecond
	// After an error a part is asked again after firstRetry, and twice as long each time, up to
	// lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// Config configures a feed.
type Config struct {
	Asker Asker
	// Spans are the keys of the feed, in ascending order, each with an end.
	Spans []keys.Span
	// After is the beginning: versions above it are passed on.
	After hlc.Timestamp
	// ProgressEvery is the least time between two events of progress, and how long a partition may
	// hold a question.
	ProgressEvery time.Duration
	// Keeper, if set, keeps changes until a progress covers them. Then a change may come again, and
	// progress may come sooner than after ProgressEvery.
	Keeper Keeper
	// Failed, if set, is called with errors after which a part is asked again.
	Failed func(error)
}

// Event is a change, or, if Change is nil, progress.
type Event struct {
	Change *kvpb.Change
	// Progress: everything at or below it has been passed on.
	Progress hlc.Timestamp
}

// Run passes changes on until the context or an error ends it, or emit returns false: then Run
// returns nil. emit is called on the caller's goroutine.
func Run(ctx context.Context, c Config, emit func(Event) bool) error {
	f := &feed{Config: c, frontier: frontier.New(c.After, c.Spans...),
		answers: make(chan answered, MaxAsked), told: c.After, next: time.Now().Add(c.ProgressEvery)}
	if c.Keeper != nil {
		f.window = newWindow(c.After)
	}
	inner, cancel := context.WithCancel(ctx)
	defer f.asking.Wait()
	defer cancel()
	return f.run(inner, ctx, emit)
}

// feed is a running feed. It belongs to the goroutine of Run, apart from those that ask.
type feed struct {
	Config
	frontier *frontier.Frontier
	queue    queue
	asked    int
	asking   sync.WaitGroup
	answers  chan answered
	// window is nil without a Keeper.
	window *window

	// told is the last progress; the next one is due at next.
	told hlc.Timestamp
	next time.Time
}

// answered is the result of a question.
type answered struct {
	question Question
	at       time.Time
	failures int
	answer   Answer
	err      error
}

func (f *feed) run(ctx, outer context.Context, emit func(Event) bool) error {
	now := time.Now()
	for _, p := range f.frontier.Within(keys.Span{}) {
		f.queue.add(p.Span.Start, now, 0)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		f.look(now)
		if !now.Before(f.next) {
			f.next = now.Add(f.ProgressEvery)
			if least := f.frontier.Min(); f.told.Less(least) && !f.tell(least, emit) {
				return nil
			}
		}
		if err := f.ask(ctx, now); err != nil {
			return err
		}
		wake := f.next
		if due, any := f.queue.first(); any && f.asked < MaxAsked && due.Before(wake) {
			wake = due
		}
		if w := f.window; w != nil && len(w.waiting) > 0 && w.looked.Add(lookEvery).Before(wake) {
			wake = w.looked.Add(lookEvery)
		}
		timer.Reset(time.Until(wake))
		select {
		case a := <-f.answers:
			f.asked--
			more, err := f.admit(&a, emit)
			var changes []*kvpb.Change
			if err == nil && more {
				changes, err = f.take(&a)
			}
			if err != nil {
				if ctxErr := outer.Err(); ctxErr != nil {
					err = ctxErr
				}
				return err
			}
			if !more {
				return nil
			}
			// The next page is on its way while this one is passed on.
			if err := f.ask(ctx, time.Now()); err != nil {
				return err
			}
			for _, c := range changes {
				if !emit(Event{Change: c}) {
					return nil
				}
			}
		case <-timer.C:
		case <-outer.Done():
			return outer.Err()
		}
	}
}

// tell reports progress.
func (f *feed) tell(least hlc.Timestamp, emit func(Event) bool) bool {
	f.told = least
	return emit(Event{Progress: least})
}

// admit makes room for an answer in the Keeper, if there is one. more is false if emit returned
// false.
func (f *feed) admit(a *answered, emit func(Event) bool) (more bool, err error) {
	if f.Keeper == nil || a.err != nil {
		return true, nil
	}
	if f.stale(a) {
		a.err = errForgotten
		return true, nil
	}
	if a.question.Upto.IsZero() {
		f.window.newest = hlc.Max(f.window.newest, a.answer.Resolved)
	}
	return f.makeRoom(&a.answer, emit)
}

// ask asks about the parts that are due, as many as the limits allow.
func (f *feed) ask(ctx context.Context, now time.Time) error {
	for f.asked < MaxAsked {
		start, failures, any := f.queue.take(now)
		if !any {
			return nil
		}
		if err := f.askPart(ctx, start, failures, now); err != nil {
			return err
		}
	}
	return nil
}

// askPart asks about the part that begins at a key, if there is one.
func (f *feed) askPart(ctx context.Context, start []byte, failures int, now time.Time) error {
	p := f.frontier.At(start)
	if p == nil || p.Asked {
		return nil // joined to the part before; or its answer is still to come
	}
	var upto hlc.Timestamp
	if f.window != nil {
		end, waits := f.window.bound(p.Resolved)
		if waits {
			f.window.waiting[string(start)] = struct{}{}
			return nil
		}
		upto = end
	}
	partition, known, err := f.Asker.Partition(start)
	switch {
	case err != nil:
		return err
	case known:
		for _, bound := range [][]byte{partition.Start, partition.End} {
			if f.frontier.Cut(bound) {
				f.queue.add(bound, now, 0)
			}
		}
		p = f.frontier.At(start)
		for _, sibling := range f.frontier.Within(partition) {
			switch r := sibling.Resolved; {
			case r.Less(p.Resolved):
				f.queue.add(start, now.Add(siblingPause), failures)
				return nil
			case p.Resolved.Less(r) && (upto.IsZero() || r.Less(upto)):
				upto = r
			}
		}
	}
	q := Question{Span: p.Span, After: p.Resolved, Head: p.Head, Upto: upto, Limit: f.limit(),
		Idle: f.ProgressEvery}
	if f.frontier.Len() > MaxAsked {
		q.Idle = 0 // other parts wait for its place
	}
	p.Asked = true
	f.asked++
	f.asking.Go(func() {
		answer, err := f.Asker.Ask(ctx, q)
		f.answers <- answered{question: q, at: now, failures: failures, answer: answer, err: err}
	})
	return nil
}

// limit returns the greatest size of the next answer.
func (f *feed) limit() int64 {
	if f.window != nil && f.window.newest.IsZero() {
		return leastAnswer // the answer may lie far above the window
	}
	parts := int64(max(1, min(f.frontier.Len(), MaxAsked)))
	return min(mostAnswer, max(leastAnswer, Budget/parts))
}

// take processes an answer, and returns its changes.
func (f *feed) take(a *answered) ([]*kvpb.Change, error) {
	q, now := &a.question, time.Now()
	start := q.Span.Start
	if a.err == errForgotten {
		f.frontier.At(start).Asked = false
		f.queue.add(start, now, 0)
		return nil, nil
	}
	if a.err != nil {
		if f.Asker.Final(a.err) {
			return nil, a.err
		}
		if f.Failed != nil {
			f.Failed(a.err)
		}
		f.frontier.At(start).Asked = false
		f.queue.add(start, now.Add(retry(a.failures)), a.failures+1)
		return nil, nil
	}
	r := &a.answer
	if r.More {
		f.frontier.Advance(start, r.Resume, r.Resolved)
		f.frontier.AdvanceKey(r.Resume, r.ResumeVersion)
	} else {
		end := q.Span.End
		if within := q.Span.Intersect(r.Partition); !within.Empty() {
			end = within.End
		}
		f.frontier.Advance(start, end, r.Resolved)
	}
	f.frontier.Join(r.Partition)
	due := now
	if len(r.Changes) == 0 && !r.More {
		due = a.at.Add(pause)
		if f.frontier.Len() > MaxAsked || q.Upto.IsZero() && now.Sub(a.at) < pause {
			// The question was not held, and the next one would not be.
			due = a.at.Add(max(pause, min(f.ProgressEvery, mostPause)))
		}
	}
	// The rest of the part, and parts that have waited for it.
	for _, span := range []keys.Span{q.Span, r.Partition} {
		for _, p := range f.frontier.Within(span) {
			if !p.Asked {
				f.queue.add(p.Span.Start, due, 0)
			}
		}
	}
	return r.Changes, nil
}

// retry returns the pause after an error, by the number of consecutive failures before.
func retry(failures int) time.Duration {
	return min(lastRetry, firstRetry<<min(failures, 8))
}
