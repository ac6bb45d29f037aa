package backups

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Log is an open log of a schedule. It is for one goroutine.
type Log interface {
	// Round writes all changes since the last round. After an error it may be called again.
	Round(context.Context) error
	// End is the moment up to which the log has all changes, and the After of its last round.
	End() (at, round *clusterpb.Timestamp)
	Close()
}

// Pauses of a log after a failure, which double.
const logRetry, maxLogRetry = time.Second, 30 * time.Second

// logs are the logs that the leader writes, each by a goroutine of its own.
type logs struct {
	of *Backups
	// poked wakes run. Capacity 1.
	poked chan struct{}

	// mu guards what follows. It is a leaf.
	mu sync.Mutex
	// open are the logs that are written, by the name of their schedule.
	open map[string]*writing
}

// writing is a log that is written.
type writing struct {
	id     string
	cancel context.CancelFunc
	done   chan struct{}
	// failure is why the log does not go on; empty: it goes on.
	failure string
}

func newLogs(b *Backups) *logs {
	return &logs{of: b, poked: make(chan struct{}, 1), open: make(map[string]*writing)}
}

func (l *logs) poke() {
	select {
	case l.poked <- struct{}{}:
	default:
	}
}

// failure is why the log of a schedule does not go on; empty: it goes on, or this member does not
// write it.
func (l *logs) failure(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.open[name]; w != nil {
		return w.failure
	}
	return ""
}

// run writes logs while this member leads, until ctx ends.
func (l *logs) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.only(nil, nil)
	for {
		leads, changed := l.of.config.Store.Leadership()
		var wanted []schedule
		if leads.Serving {
			if v, err := l.of.meta.View(ctx); err == nil {
				// A record that cannot be read is told of by the loop of the backups.
				wanted, _ = loadSchedules(v)
			}
		}
		l.only(wanted, func(s schedule, w *writing) {
			writing, cancel := context.WithCancel(ctx)
			w.cancel = cancel
			go func() {
				defer close(w.done)
				defer cancel()
				l.write(writing, s.Name, s.Log)
			}()
		})
		timer.Reset(lookAgain)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-l.poked:
		case <-timer.C:
		}
	}
}

// only ends all logs but those that are wanted, and begins the wanted ones that are not open.
func (l *logs) only(wanted []schedule, begin func(schedule, *writing)) {
	keep := make(map[string]schedule)
	for _, s := range wanted {
		if s.LogMillis != 0 && !s.Paused && s.Log != "" {
			keep[s.Name] = s
		}
	}
	l.mu.Lock()
	var ended []*writing
	for name, w := range l.open {
		if s, ok := keep[name]; !ok || s.Log != w.id {
			w.cancel()
			ended = append(ended, w)
			delete(l.open, name)
		}
	}
	l.mu.Unlock()
	for _, w := range ended {
		<-w.done
	}
	for name, s := range keep {
		l.mu.Lock()
		if l.open[name] == nil {
			w := &writing{id: s.Log, done: make(chan struct{})}
			begin(s, w)
			l.open[name] = w
		}
		l.mu.Unlock()
	}
}

// stop ends the log of a schedule, if this member writes it.
func (l *logs) stop(name string) {
	l.mu.Lock()
	w := l.open[name]
	delete(l.open, name)
	l.mu.Unlock()
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// fail notes why a log does not go on.
func (l *logs) fail(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.open[name]; w != nil {
		if w.failure = ""; err != nil {
			w.failure = err.Error()
		}
	}
}

// errOver: the schedule has another log, or none.
var errOver = errors.New("the log is over")

// write writes a log until ctx ends, or the schedule has another log.
func (l *logs) write(ctx context.Context, name, id string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		err := l.rounds(ctx, name, id, func() { failures = 0 })
		if ctx.Err() != nil || errors.Is(err, errOver) {
			return
		}
		l.fail(name, err)
		l.of.metrics.logFailed(name)
		l.of.config.Logger.Warn("a log of changes is interrupted; it will be continued", "schedule", name,
			"log", id, "error", err)
		if l.of.config.Maker.Broken(err) {
			if err := l.again(ctx, name, id, err); err == nil {
				return
			}
		}
		timer.Reset(min(maxLogRetry, logRetry<<min(failures, 10)))
		failures++
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// rounds opens a log and writes rounds until one fails.
func (l *logs) rounds(ctx context.Context, name, id string, went func()) error {
	s, err := l.of.currentSchedule(ctx, name)
	if err != nil {
		return err
	}
	if s.BackupSchedule == nil || s.Log != id || s.Paused {
		return errOver
	}
	open, err := l.of.config.Maker.OpenLog(ctx, s.BackupSchedule)
	if err != nil {
		return err
	}
	defer open.Close()
	ticker := time.NewTicker(s.log())
	defer ticker.Stop()
	for {
		if err := open.Round(ctx); err != nil {
			return err
		}
		at, round := open.End()
		first := false
		if err := l.of.changeLog(ctx, name, id, func(s *schedule) {
			first = s.LogAt == nil
			s.LogAt, s.LogRound = at, round
		}); err != nil {
			return err
		}
		if first {
			l.of.poke() // a backup may wait for that
		}
		l.fail(name, nil)
		l.of.metrics.logWritten(name, at)
		went()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// again begins another log, because the history that the present one has not read was collected. A
// backup is made at once: moments before it cannot be restored with the new log.
func (l *logs) again(ctx context.Context, name, id string, why error) error {
	err := l.of.changeLog(ctx, name, id, func(s *schedule) {
		if err := l.of.newLog(s); err == nil {
			s.Now = true
		}
	})
	if err != nil {
		return err
	}
	l.of.metrics.logGap(name)
	l.of.config.Logger.Error("A LOG OF CHANGES HAS A GAP: history was collected before it was read; "+
		"another log begins", "schedule", name, "log", id, "error", why)
	l.of.poke()
	l.poke()
	return nil
}

// currentSchedule reads a schedule; its BackupSchedule is nil if it is not there.
func (b *Backups) currentSchedule(ctx context.Context, name string) (schedule, error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return schedule{}, err
	}
	return loadSchedule(v, name)
}

// changeLog changes what a schedule has of its log, or returns errOver if it has another one.
func (b *Backups) changeLog(ctx context.Context, name, id string, change func(*schedule)) error {
	for {
		s, err := b.currentSchedule(ctx, name)
		if err != nil {
			return err
		}
		if s.BackupSchedule == nil || s.Log != id || s.Paused {
			return errOver
		}
		change(&s)
		if ok, err := b.writeSchedule(ctx, s); err != nil || ok {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
