package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/kv"
)

// feedFollower follows a feed. It builds a copy of the keyspace, checks the promises of a feed, and
// measures how far each change is behind the clock when the loop receives it.
type feedFollower struct {
	keyspace *kv.Keyspace
	ledger   *feedLedger
	// began is closed at the first progress. The feed delivers everything that is written after
	// that.
	began chan struct{}
	// until ends the loop at the first progress at or above this timestamp.
	until atomic.Pointer[kv.Timestamp]

	// values is the state at the last progress. waiting has the changes above it. newest has the
	// last version of each key. Only the loop uses these fields.
	values  map[string]string
	waiting []kv.Change
	newest  map[string]kv.Timestamp

	mu struct {
		sync.Mutex
		progress kv.Timestamp
		changes  int
		// lags has the lags of changes since the last call of measure, in microseconds.
		lags *hdrhistogram.Histogram
		// behind is the largest lag that a progress had when the next one came, since the last call
		// of measure.
		behind time.Duration
		wrong  []string
	}
}

func newFeedFollower(ks *kv.Keyspace, ledger *feedLedger) *feedFollower {
	f := &feedFollower{keyspace: ks, ledger: ledger, began: make(chan struct{}),
		values: make(map[string]string), newest: make(map[string]kv.Timestamp)}
	f.mu.lags = newHistogram()
	return f
}

// follow follows a feed until it reaches until, or ctx ends. Changes that an earlier feed delivered
// above its last progress are delivered again.
func (f *feedFollower) follow(ctx context.Context, options ...kv.ChangesOption) error {
	f.waiting = nil
	for key, at := range f.newest {
		if f.at().Less(at) {
			delete(f.newest, key)
		}
	}
	for c, err := range f.keyspace.Changes(ctx, options...) {
		if err != nil {
			return err
		}
		if c.Kind != kv.ChangeProgress {
			f.change(c)
			continue
		}
		f.advance(c.Timestamp)
		if until := f.until.Load(); until != nil && until.LessEq(c.Timestamp) {
			return nil
		}
	}
	return errors.New("the feed ended without an error")
}

// change processes a change.
func (f *feedFollower) change(c kv.Change) {
	now := time.Now().UnixNano()
	key := string(c.Key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.newest[key]; c.Timestamp.LessEq(before) || c.Timestamp.LessEq(f.mu.progress) {
		f.wrongLocked("%s of %s was told after %s, and after a progress of %s",
			key, c.Timestamp, before, f.mu.progress)
	}
	f.newest[key] = c.Timestamp
	f.waiting = append(f.waiting, c)
	f.mu.changes++
	lag := max(1, time.Duration(now-c.Timestamp.Wall).Microseconds())
	if h := f.mu.lags; h.RecordValue(min(lag, h.HighestTrackableValue())) != nil {
		f.wrongLocked("the lag %v cannot be recorded", lag)
	}
}

// advance processes a progress.
func (f *feedFollower) advance(to kv.Timestamp) {
	f.mu.Lock()
	if to.LessEq(f.mu.progress) {
		f.wrongLocked("a progress of %s came after one of %s", to, f.mu.progress)
	}
	if f.mu.progress.IsZero() {
		close(f.began)
	} else {
		f.mu.behind = max(f.mu.behind, time.Duration(time.Now().UnixNano()-f.mu.progress.Wall))
	}
	f.mu.progress = to
	f.mu.Unlock()
	var told, above []kv.Change
	for _, c := range f.waiting {
		if to.Less(c.Timestamp) {
			above = append(above, c)
			continue
		}
		told = append(told, c)
		if f.values[string(c.Key)] = string(c.Value); c.Kind == kv.ChangeDelete {
			delete(f.values, string(c.Key))
		}
	}
	f.waiting = above
	f.ledger.advance(told, to)
}

func (f *feedFollower) wrongLocked(format string, arguments ...any) {
	if len(f.mu.wrong) < mostWrong {
		f.mu.wrong = append(f.mu.wrong, fmt.Sprintf(format, arguments...))
	}
}

// at returns the last progress.
func (f *feedFollower) at() kv.Timestamp {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.progress
}

// told returns the number of received changes.
func (f *feedFollower) told() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.changes
}

// measure returns the measurements since its last call, and starts new ones.
func (f *feedFollower) measure() (lags *hdrhistogram.Histogram, behind time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lags, behind = f.mu.lags, f.mu.behind
	f.mu.lags, f.mu.behind = newHistogram(), 0
	return lags, behind
}

// same compares the state built from the changes with a scan at the progress. The loop must have
// ended.
func (f *feedFollower) same(ctx context.Context) error {
	at, found := f.at(), make(map[string]string)
	for pair, err := range f.keyspace.Scan(ctx, kv.At(at)) {
		if err != nil {
			return fmt.Errorf("scan at the last progress: %w", err)
		}
		key, value := string(pair.Key), string(pair.Value)
		if got, has := f.values[key]; !has || got != value {
			return fmt.Errorf("as of %s a scan finds %s = %q, and the changes make %q (%v)",
				at, key, value, got, has)
		}
		found[key] = value
	}
	for key, value := range f.values {
		if _, has := found[key]; !has {
			return fmt.Errorf("as of %s a scan does not find %s, and the changes make %q", at, key, value)
		}
	}
	return nil
}

// judge makes all checks at the end. No write is under way, and the loop has ended.
func (f *feedFollower) judge(e *environment) {
	e.Helper()
	acked, unknown, wrong := f.ledger.report()
	f.mu.Lock()
	wrong = append(wrong, f.mu.wrong...)
	f.mu.Unlock()
	if err := f.same(e.ctx); err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, w := range wrong {
		e.Errorf("%s: %s", f.keyspace.Name(), w)
	}
	says := "all of them told, in order for each key, and what they make is what a scan finds"
	if len(wrong) > 0 {
		says = "the feed is WRONG"
	}
	e.result("%d writes acknowledged, %d with an unknown outcome, %d changes told (with what came "+
		"again), %d keys as of %s: %s",
		acked, unknown, f.told(), len(f.values), f.at(), says)
	if acked == 0 {
		e.Error("nothing was written")
	}
}
