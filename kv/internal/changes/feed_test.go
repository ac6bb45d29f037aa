package changes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// fakeStore is versions of a few keys in partitions that split and merge, and answers questions as
// badly as the protocol allows. What is closed is closed everywhere.
type fakeStore struct {
	t  *testing.T
	mu sync.Mutex
	*rand.Rand
	// bounds are where partitions begin, besides the first one; told, as the asker knows them.
	bounds, told []string
	closed       int64
	versions     []storedChange
	// asked are the questions that are not answered.
	asked []Question
	calls int
	// blocked: no question below this key is answered.
	blocked string
	// final, if set, is what questions are answered with.
	final error
}

type storedChange struct {
	key string
	at  int64
}

var errAgain, errFinal = errors.New("again"), errors.New("final")

func ts(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }

func partitionOf(bounds []string, key string) keys.Span {
	span := keys.Span{}
	for _, b := range bounds {
		if key < b {
			span.End = []byte(b)
			break
		}
		span.Start = []byte(b)
	}
	return span
}

func (s *fakeStore) Partition(key []byte) (keys.Span, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.IntN(10) == 0 {
		return keys.Span{}, false, nil
	}
	return partitionOf(s.told, string(key)), true, nil
}

func (s *fakeStore) Final(err error) bool { return errors.Is(err, errFinal) }

// Ask holds questions for a while, and then answers what it may: nothing, a page, or all.
func (s *fakeStore) Ask(ctx context.Context, q Question) (Answer, error) {
	s.mu.Lock()
	s.calls++
	limits := q.Limit
	for _, o := range s.asked {
		limits += o.Limit
		if o.Span.Overlaps(q.Span) {
			s.t.Errorf("%s is asked, and so is %s", q.Span, o.Span)
		}
	}
	if limits > Budget {
		s.t.Errorf("answers of %d bytes may come", limits)
	}
	s.asked = append(s.asked, q)
	pause := time.Duration(s.IntN(50)) * time.Millisecond
	s.mu.Unlock()
	select {
	case <-time.After(pause): // virtual
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = slices.DeleteFunc(s.asked, func(o Question) bool { return o.Span.Equal(q.Span) })
	switch {
	case s.final != nil:
		return Answer{}, s.final
	case s.IntN(8) == 0, string(q.Span.Start) < s.blocked:
		return Answer{}, errAgain
	}
	a := Answer{Partition: partitionOf(s.bounds, string(q.Span.Start)), Resolved: q.Upto}
	span := q.Span.Intersect(a.Partition)
	if a.Resolved.IsZero() {
		a.Resolved = hlc.Max(q.After, ts(q.After.Wall+s.Int64N(max(1, s.closed-q.After.Wall+1))))
	}
	if s.closed < a.Resolved.Wall {
		s.t.Errorf("%s is asked for, and %d is closed", a.Resolved, s.closed)
	}
	var found []storedChange
	for _, v := range s.versions {
		after := q.After
		if v.key == string(q.Span.Start) {
			after = hlc.Max(after, q.Head)
		}
		if span.Contains([]byte(v.key)) && after.Less(ts(v.at)) && ts(v.at).LessEq(a.Resolved) {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b storedChange) int {
		if a.key != b.key {
			return strings.Compare(a.key, b.key)
		}
		return int(a.at - b.at)
	})
	if page := 1 + s.IntN(4); page < len(found) {
		a.More, a.Resume = true, []byte(found[page].key)
		switch {
		case found[page-1].key == found[page].key:
			a.ResumeVersion = ts(found[page-1].at)
		case found[page].key == string(q.Span.Start):
			a.ResumeVersion = q.Head
		}
		found = found[:page]
	}
	for _, v := range found {
		a.Changes = append(a.Changes, &kvpb.Change{Key: []byte(v.key),
			Version: wire.ToTimestamp(ts(v.at))})
	}
	return a, nil
}

// questions is how many there were.
func (s *fakeStore) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// happen is what happens meanwhile, for a while.
func (s *fakeStore) happen(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.mu.Lock()
		key := string(rune('a' + s.IntN(12)))
		switch s.IntN(6) {
		case 0, 1, 2:
			v := storedChange{key, s.closed + 1 + s.Int64N(5)}
			if !slices.Contains(s.versions, v) {
				s.versions = append(s.versions, v)
			}
		case 3:
			s.closed += s.Int64N(4)
		case 4:
			if i, has := slices.BinarySearch(s.bounds, key); has {
				s.bounds = slices.Delete(slices.Clone(s.bounds), i, i+1)
			} else {
				s.bounds = slices.Insert(slices.Clone(s.bounds), i, key)
			}
		case 5:
			s.told = s.bounds
		}
		pause := time.Duration(s.IntN(20)) * time.Millisecond
		s.mu.Unlock()
		time.Sleep(pause) // virtual
	}
}

// TestFeed: whatever becomes of the partitions, of the pages and of the questions, each version
// above where the feed began comes once, those of a key in their order, and none that lies at or
// below what was told as progress before; and the progress comes to what is closed.
func TestFeed(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runFeed(t, seed, nil) })
		})
	}
}

// TestFeedInLittleRoom: TestFeed, with room for less than is written, and for less than there is at
// the beginning.
func TestFeedInLittleRoom(t *testing.T) {
	forgot := 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &keeper{t: t, room: 12 + int(seed%8)}
				runFeed(t, seed, k)
				forgot += k.forgot
			})
		})
	}
	if forgot < 60 {
		t.Errorf("changes were forgotten %d times", forgot)
	}
}

// TestAPartThatCannotBeRead: the other parts wait for the part, in the room that there is, and the
// feed goes on when the part can be read.
func TestAPartThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{t: t, Rand: rand.New(rand.NewPCG(1, 1)), closed: 1000, blocked: "d",
			bounds: []string{"d", "g", "i"}, told: []string{"d", "g", "i"}}
		for at := range int64(900) {
			s.versions = append(s.versions, storedChange{string(rune('a' + at%12)), 1 + at})
		}
		k, came, calls := &keeper{t: t, room: 20}, 0, 0
		time.AfterFunc(time.Minute, func() { // virtual
			s.mu.Lock()
			defer s.mu.Unlock()
			s.blocked, calls = "", s.calls
		})
		if err := Run(t.Context(), Config{Asker: s, Keeper: k, ProgressEvery: time.Second,
			Spans: []keys.Span{{Start: []byte("a"), End: []byte("z")}}}, func(e Event) bool {
			if e.Change != nil {
				k.take(storedChange{string(e.Change.Key), wire.FromTimestamp(e.Change.Version).Wall})
				return true
			}
			came += len(k.upTo(e.Progress))
			return e.Progress.Wall < 950
		}); err != nil {
			t.Fatal(err)
		}
		if came != 900 || calls == 0 || calls > 1000 {
			t.Errorf("%d changes came, and there were %d questions in the first minute", came, calls)
		}
	})
}

// keeper has room for some changes.
type keeper struct {
	t      *testing.T
	room   int
	held   []storedChange
	forgot int
}

func (k *keeper) Fits(changes, _ int) (bool, error) { return len(k.held)+changes <= k.room, nil }

func (k *keeper) Share() float64 { return float64(len(k.held)) / float64(k.room) }

func (k *keeper) Full(at hlc.Timestamp) error { return fmt.Errorf("full at %s", at) }

// Forget keeps the lowest half, with all of the lowest timestamp.
func (k *keeper) Forget(next, most hlc.Timestamp) (hlc.Timestamp, bool, error) {
	k.forgot++
	slices.SortFunc(k.held, func(a, b storedChange) int { return int(a.at - b.at) })
	upto := min(next.Wall, most.Wall)
	if len(k.held) > 0 {
		upto = min(upto, k.held[0].at)
	}
	for i, v := range k.held {
		last := i+1 == len(k.held) || v.at < k.held[i+1].at
		if last && i < k.room/2 && v.at <= most.Wall {
			upto = max(upto, v.at)
		}
	}
	before := len(k.held)
	k.held = slices.DeleteFunc(k.held, func(v storedChange) bool { return upto < v.at })
	return ts(upto), len(k.held) < before, nil
}

// take keeps a change.
func (k *keeper) take(v storedChange) {
	if slices.Contains(k.held, v) {
		k.t.Errorf("%v comes again, and was not forgotten", v)
	}
	if k.held = append(k.held, v); len(k.held) > k.room {
		k.t.Errorf("%d changes are kept", len(k.held))
	}
}

// upTo takes out what lies at or below a timestamp, in order.
func (k *keeper) upTo(at hlc.Timestamp) (out []storedChange) {
	slices.SortFunc(k.held, func(a, b storedChange) int { return int(a.at - b.at) })
	n := 0
	for n < len(k.held) && k.held[n].at <= at.Wall {
		n++
	}
	out, k.held = slices.Clone(k.held[:n]), slices.Clone(k.held[n:])
	return out
}

func runFeed(t *testing.T, seed uint64, k *keeper) {
	s := &fakeStore{t: t, Rand: rand.New(rand.NewPCG(seed, 1)), closed: 5}
	const begin = 3
	for range 20 {
		v := storedChange{string(rune('a' + s.IntN(12))), 1 + s.Int64N(9)}
		if !slices.Contains(s.versions, v) {
			s.versions = append(s.versions, v)
		}
	}
	span := keys.Span{Start: []byte("b"), End: []byte("k")}
	var last atomic.Int64
	go func() {
		s.happen(20 * time.Second)
		s.mu.Lock()
		s.closed += 10
		last.Store(s.closed)
		s.mu.Unlock()
	}()
	newest, slow := map[string]hlc.Timestamp{}, rand.New(rand.NewPCG(seed, 2))
	var told hlc.Timestamp
	came := 0
	c := Config{Asker: s, Spans: []keys.Span{span}, After: ts(begin),
		ProgressEvery: 300 * time.Millisecond}
	take := func(v storedChange) {
		came++
		if at := ts(v.at); at.LessEq(newest[v.key]) || at.LessEq(told) || at.LessEq(ts(begin)) {
			t.Errorf("%s at %s came after %s, and progress of %s", v.key, at, newest[v.key], told)
		}
		newest[v.key] = ts(v.at)
	}
	takeOrKeep := take
	if k != nil {
		c.Keeper, takeOrKeep = k, k.take
	}
	err := Run(t.Context(), c,
		func(e Event) bool {
			if e.Change == nil {
				if e.Progress.LessEq(told) {
					t.Errorf("progress of %s after %s", e.Progress, told)
				}
				if k != nil {
					for _, v := range k.upTo(e.Progress) {
						take(v)
					}
				}
				told = e.Progress
				return last.Load() == 0 || told.Wall < last.Load()
			}
			takeOrKeep(storedChange{string(e.Change.Key), wire.FromTimestamp(e.Change.Version).Wall})
			if slow.IntN(10) == 0 {
				time.Sleep(time.Duration(slow.IntN(100)) * time.Millisecond) // virtual
			}
			return true
		})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, v := range s.versions {
		if span.Contains([]byte(v.key)) && v.at > begin && v.at <= told.Wall {
			want++
		}
	}
	if came != want || want == 0 {
		t.Fatalf("%d of %d changes came", came, want)
	}
}

// TestFeedEnds: with the context, with an error that is final, and by the consumer.
func TestFeedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{t: t, Rand: rand.New(rand.NewPCG(1, 1)), closed: 5, final: errFinal,
			versions: []storedChange{{"c", 4}}}
		c := Config{Asker: s, Spans: []keys.Span{{Start: []byte("a"), End: []byte("z")}},
			ProgressEvery: time.Second}
		if err := Run(t.Context(), c, func(Event) bool { return true }); !errors.Is(err, errFinal) {
			t.Errorf("it ended with %v", err)
		}
		s.final, s.asked = errAgain, nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Run(ctx, c, func(Event) bool { return true }); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		if s.calls > 50 { // 2 s apart, but for the first ones
			t.Errorf("%d questions in a minute in which all failed", s.calls)
		}
		s.final, s.asked = nil, nil
		if err := Run(t.Context(), c, func(Event) bool { return false }); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestSlowConsumer: while nothing is taken, nothing more is asked.
func TestSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{t: t, Rand: rand.New(rand.NewPCG(1, 1)), closed: 1000}
		for at := range int64(900) {
			s.versions = append(s.versions, storedChange{string(rune('a' + at%12)), 1 + at})
		}
		calls, seen := 0, 0
		if err := Run(t.Context(), Config{Asker: s,
			Spans:         []keys.Span{{Start: []byte("a"), End: []byte("z")}},
			ProgressEvery: time.Second}, func(e Event) bool {
			if e.Change == nil {
				return seen < 100
			}
			if seen++; seen == 50 {
				time.Sleep(time.Minute) // virtual
				calls = s.questions()
				time.Sleep(time.Minute) // virtual
				if now := s.questions(); now != calls {
					t.Errorf("%d questions while nothing was taken", now-calls)
				}
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if seen < 100 {
			t.Fatalf("%d changes came", seen)
		}
	})
}

// atOnce answers at once that nothing has changed, as a leader does.
type atOnce struct {
	*fakeStore
	asked int
}

func (s *atOnce) Ask(_ context.Context, q Question) (Answer, error) {
	s.asked++
	return Answer{Partition: partitionOf(s.bounds, string(q.Span.Start)),
		Resolved: ts(time.Now().UnixNano())}, nil
}

// TestAnsweredAtOnce: an Asker that does not hold questions is not asked all the time.
func TestAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &atOnce{fakeStore: &fakeStore{t: t, Rand: rand.New(rand.NewPCG(1, 1))}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = Run(ctx, Config{Asker: s, Spans: []keys.Span{{Start: []byte("a"), End: []byte("z")}},
			ProgressEvery: time.Second}, func(Event) bool { return true })
		if s.asked < 30 || s.asked > 70 {
			t.Errorf("%d questions in a minute", s.asked)
		}
	})
}
