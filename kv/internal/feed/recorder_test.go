package feed

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// errFinal is an error that does not pass.
var errFinal = errors.New("the consumer was dropped")

// recorder is a core that records positions as a test wants it.
type recorder struct {
	// refuse answers the attempts, by number; nil: each one is recorded. It may block.
	refuse   func(ctx context.Context, attempt int) error
	attempts int
	recorded []hlc.Timestamp
	failures int
}

func (r *recorder) set(ctx context.Context, at hlc.Timestamp) error {
	r.attempts++
	if r.refuse != nil {
		if err := r.refuse(ctx, r.attempts); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.recorded = append(r.recorded, at)
	return nil
}

// loop takes progress, a second apart, and ends by itself. It returns how long the end took, and
// with what the feed was ended.
func (r *recorder) loop(t *testing.T, progress ...int64) (ending time.Duration, ended error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	c := Record(ctx, r.set, func(err error) bool { return errors.Is(err, errFinal) },
		func(error) { r.failures++ }, cancel)
	for i, at := range progress {
		if i > 0 {
			time.Sleep(time.Second) // virtual
		}
		c.Took(hlc.Timestamp{Wall: at})
		synctest.Wait()
	}
	if ctx.Err() != nil {
		ended = context.Cause(ctx)
	}
	cancel(nil)
	began := time.Now()
	c.Stop()
	return time.Since(began), ended
}

// last is the last position that was recorded.
func (r *recorder) last() int64 {
	if len(r.recorded) == 0 {
		return 0
	}
	return r.recorded[len(r.recorded)-1].Wall
}

// A loop that ends while its last position is being recorded does not end that.
func TestTheEndOfALoopLeavesItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{refuse: func(ctx context.Context, _ int) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		if _, err := r.loop(t, 7); r.last() != 7 || err != nil {
			t.Errorf("recorded is %d, %v", r.last(), err)
		}
	})
}

// A last position that could not be recorded is tried again, for as long as the end of a loop
// waits.
func TestTheLastRecordIsTriedAgain(t *testing.T) {
	passing := errors.New("the core has no leader")
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{refuse: func(_ context.Context, attempt int) error {
			if attempt <= 3 {
				return passing
			}
			return nil
		}}
		if _, err := r.loop(t, 7); r.last() != 7 || r.failures != 3 || err != nil {
			t.Errorf("recorded is %d after %d failures, %v", r.last(), r.failures, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a later one takes its place
		r := &recorder{refuse: func(_ context.Context, attempt int) error {
			if attempt == 1 {
				return passing
			}
			return nil
		}}
		if _, err := r.loop(t, 7, 8, 9); r.last() != 9 || r.attempts != 2 || err != nil {
			t.Errorf("recorded is %v in %d attempts, %v", r.recorded, r.attempts, err)
		}
	})
	for name, refuse := range map[string]func(context.Context, int) error{
		"refuses": func(context.Context, int) error { return passing },
		"is silent": func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{refuse: refuse}
			if took, err := r.loop(t, 7); took > lastRecord || r.last() != 0 || err != nil {
				t.Errorf("a core that %s: the end took %v, %v", name, took, err)
			}
		})
	}
}

// An error that is final ends the feed.
func TestAFinalErrorOfARecordEndsTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{refuse: func(context.Context, int) error { return errFinal }}
		took, err := r.loop(t, 7, 8)
		if !errors.Is(err, errFinal) || r.attempts != 1 || took != 0 {
			t.Errorf("%v after %d attempts; the end took %v", err, r.attempts, took)
		}
	})
}

// Errors of a feed come from two goroutines. They are logged now and then.
func TestErrorsOfAFeedAreLoggedNowAndThen(t *testing.T) {
	var log strings.Builder
	m, err := NewMetrics(nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	feed := m.Begin("things", hlc.Timestamp{})
	defer feed.End()
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() { feed.Failed(errors.New("no leader")) })
		working.Go(func() { feed.NotRecorded(errors.New("no core")) })
	}
	working.Wait()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d messages:\n%s", n, log.String())
	}
}
