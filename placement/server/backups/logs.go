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
	// Round writes all changes since the last round. It may be called again after an error.
	Round(context.Context) error
	// End returns the moment up to which the log has all changes, and the After of the last round.
	End() (at, round *clusterpb.Timestamp)
	Close()
}

// logRetry and maxLogRetry are the first and the longest pause of a log after a failure. The pause
// doubles.
const logRetry, maxLogRetry = time.Second, 30 * time.Second

// logs has the logs that the leader writes. Each log has a goroutine.
type logs struct {
	of *Backups
	// poked wakes run. Capacity 1.
	poked chan struct{}

	// mu guards the fields below. No other lock is taken while it is held.
	mu sync.Mutex
	// open has the logs that are being written, by the name of their schedule.
	open map[string]*writing
}

// writing is a log that is being written.
type writing struct {
	id     string
	cancel context.CancelFunc
	done   chan struct{}
	// failure is the error that interrupts the log. It is empty if there is none.
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

// failure returns the error that interrupts the log of a schedule. It is empty if there is none, or
// if this member does not write the log.
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
				// The loop of the backups reports a record that cannot be read.
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

// only ends all logs except the wanted ones, and begins the wanted logs that are not open.
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
		if w := l.open[name]; w == nil || w.over() {
			w := &writing{id: s.Log, done: make(chan struct{})}
			begin(s, w)
			l.open[name] = w
		}
		l.mu.Unlock()
	}
}

// over reports that the writing has ended, for example because the schedule was paused.
func (w *writing) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// stop ends the writing of a schedule's log, if this member writes it.
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

// fail records the error that interrupts a log.
func (l *logs) fail(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.open[name]; w != nil {
		if w.failure = ""; err != nil {
			w.failure = err.Error()
		}
	}
}

// errOver: the schedule has another log, or no log.
var errOver = errors.New("the log is over")

// write writes a log until ctx ends or the schedule has another log.
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
			l.of.poke() // a backup may wait for the log
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

// again begins a new log, because history that the present log has not read was collected. It also
// has a backup made at once: moments before that backup cannot be restored with the new log.
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

// currentSchedule reads a schedule. Its BackupSchedule is nil if the schedule does not exist.
func (b *Backups) currentSchedule(ctx context.Context, name string) (schedule, error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return schedule{}, err
	}
	return loadSchedule(v, name)
}

// changeLog changes the fields of a schedule that belong to its log. It returns errOver if the
// schedule has another log.
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
