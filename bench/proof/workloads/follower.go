package workloads

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// follower is one client that follows the changes of a Feed, and the state that it has built from
// them.
type follower struct {
	of     *Feed
	run    *driver.Run
	ks     *kv.Keyspace
	random *rand.Rand

	// began is the timestamp at which the follower started, and progress the last progress
	// timestamp; zero: the follower has to start.
	began, progress kv.Timestamp
	// values is the state at progress. waiting has the changes above progress.
	values  map[string]string
	waiting []kv.Change
	// told has the recent versions of each key that the feed has delivered, ascending.
	told map[string][]kv.Timestamp
	// acked is the number of the next acknowledged write to check. open has acknowledged writes
	// above progress.
	acked int
	open  []ackedWrite
}

// toldFor is how long a delivered version is remembered. It is longer than a write waits for its
// acknowledgement plus any error of a clock.
const toldFor = 2 * time.Minute

// begin starts anew: with a scan at the timestamp at which a new feed begins.
func (w *follower) begin(ctx context.Context) error {
	for c, err := range w.ks.Changes(ctx) {
		if err != nil {
			return err
		}
		if c.Kind != kv.ChangeProgress {
			w.violation("a feed began with a change, and without saying where")
		}
		w.began = c.Timestamp
		break
	}
	_, w.acked = w.of.since(0)
	w.open, w.told = nil, make(map[string][]kv.Timestamp)
	found, err := w.scan(ctx, w.began)
	if err == nil {
		w.values, w.progress = found, w.began
	}
	return err
}

// scan returns the state at a timestamp.
func (w *follower) scan(ctx context.Context, at kv.Timestamp) (map[string]string, error) {
	found := make(map[string]string)
	options := []kv.ScanOption{kv.At(at)}
	if w.random.IntN(2) == 0 {
		options = append(options, kv.Nearest())
	}
	for pair, err := range w.ks.Scan(ctx, options...) {
		if err != nil {
			return nil, err
		}
		found[string(pair.Key)] = string(pair.Value)
	}
	return found, nil
}

func (w *follower) violation(format string, args ...any) {
	w.run.Violation(w.of.Keyspace+": "+format, args...)
}

// follow resumes the feed at progress, until enough returns true after a progress event.
func (w *follower) follow(ctx context.Context, enough func() bool) error {
	if w.progress.IsZero() {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	w.waiting = nil
	for key, versions := range w.told { // versions above progress are delivered again
		w.told[key] = slices.DeleteFunc(versions, w.progress.Less)
	}
	every := time.Duration(50+w.random.IntN(1000)) * time.Millisecond
	for c, err := range w.ks.Changes(ctx, kv.Since(w.progress), kv.ProgressEvery(every)) {
		switch {
		case err != nil && w.of.Forgets && errors.Is(err, kv.ErrTimestampTooOld):
			w.progress = kv.Timestamp{}
			w.run.Count("feed that is too old", nil)
			return nil
		case err != nil:
			return err
		case c.Kind != kv.ChangeProgress:
			w.change(c)
			continue
		}
		if err := w.advance(ctx, c.Timestamp); err != nil {
			return err
		}
		if enough() {
			return nil
		}
	}
	w.violation("a feed ended without an error")
	return nil
}

// change processes a change.
func (w *follower) change(c kv.Change) {
	key := string(c.Key)
	before := w.told[key]
	if n := len(before); n > 0 && c.Timestamp.LessEq(before[n-1]) {
		w.violation("%s of %s was told after %s", key, c.Timestamp, before[n-1])
	}
	if c.Timestamp.LessEq(w.progress) {
		w.violation("%s of %s was told after a progress of %s", key, c.Timestamp, w.progress)
	}
	w.told[key] = append(before, c.Timestamp)
	w.waiting = append(w.waiting, c)
}

// advance processes a progress event, and makes the checks that it allows.
func (w *follower) advance(ctx context.Context, to kv.Timestamp) error {
	if to.LessEq(w.progress) {
		w.violation("a progress of %s came after one of %s", to, w.progress)
	}
	w.progress = to
	w.waiting = slices.DeleteFunc(w.waiting, func(c kv.Change) bool {
		if to.Less(c.Timestamp) {
			return false
		}
		if w.values[string(c.Key)] = string(c.Value); c.Kind == kv.ChangeDelete {
			delete(w.values, string(c.Key))
		}
		return true
	})
	w.checkAcked()
	old := to.Add(-toldFor)
	for key, versions := range w.told {
		w.told[key] = slices.DeleteFunc(versions, func(at kv.Timestamp) bool { return at.LessEq(old) })
	}
	if w.random.IntN(3) > 0 {
		return nil
	}
	return w.compare(ctx)
}

// checkAcked checks that the feed delivered each acknowledged write up to progress.
func (w *follower) checkAcked() {
	acked, next := w.of.since(w.acked)
	w.acked = next
	open := append(w.open, acked...)
	w.open = slices.DeleteFunc(open, func(a ackedWrite) bool {
		if w.progress.Less(a.at) {
			return false
		}
		if _, has := slices.BinarySearchFunc(w.told[a.key], a.at, kv.Timestamp.Compare); !has &&
			w.began.Less(a.at) && w.progress.Add(-toldFor).Less(a.at) {
			w.violation("%s was written at %s, and a feed from %s up to %s has not told it", a.key, a.at,
				w.began, w.progress)
		}
		return true
	})
}

// compare compares the state built from the changes with a scan.
func (w *follower) compare(ctx context.Context) error {
	found, err := w.scan(ctx, w.progress)
	if err != nil {
		return ignoreTooOld(err)
	}
	if maps.Equal(found, w.values) {
		return nil
	}
	for key, value := range found {
		if w.values[key] != value {
			w.violation("as of %s a scan finds %s=%q, and the changes since %s make %q", w.progress, key,
				value, w.began, w.values[key])
			return nil
		}
	}
	for key, value := range w.values {
		if _, has := found[key]; !has {
			w.violation("as of %s a scan does not find %s, and the changes since %s make %q", w.progress,
				key, w.began, value)
			return nil
		}
	}
	return nil
}
