package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Maker makes backups. Its methods may be called from several goroutines.
type Maker interface {
	// Check says what is wrong with the target, the recipients and the patterns of a backup.
	Check(*clusterpb.Backup) error
	// Latest is the newest complete backup of this cluster in the target.
	Latest(context.Context, *clusterpb.Backup) (id string, err error)
	// Resolve sets the backup, the log and the moment of a restore whose request names the newest
	// backup, or a moment.
	Resolve(context.Context, *clusterpb.Backup) error
	// NewID makes the id of a backup, or of a log.
	NewID(time.Time) string
	// NewIdentity makes the identity of an encrypted backup.
	NewIdentity() (string, error)
	// Make makes a backup, or continues it, and tells of progress. An error for which Passing is true
	// may be temporary.
	Make(ctx context.Context, b *clusterpb.Backup,
		progress func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress)) error
	Passing(error) bool
	// Restore restores a backup, or continues that. save stores what is loaded so far.
	Restore(ctx context.Context, b *clusterpb.Backup,
		progress func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress),
		save func(context.Context, []byte) error) error
	// OpenLog opens the log of a schedule, and begins it if it is not there.
	OpenLog(context.Context, *clusterpb.BackupSchedule) (Log, error)
	// Broken reports an error of an incremental backup, or of a log, that says that it cannot be
	// continued: a full backup, or another log, has to begin.
	Broken(error) bool
	// Expire removes what a schedule has made and what no restore to a moment from keep on needs. It
	// returns how many objects were removed.
	Expire(ctx context.Context, s *clusterpb.BackupSchedule, keep time.Time) (int, error)
	// Release ends the protection of history for a schedule. It may be repeated.
	Release(context.Context, *clusterpb.BackupSchedule) error
	// Undo removes what was written of a backup that is not complete, or what a restore that is not
	// complete has made. It may be repeated.
	Undo(context.Context, *clusterpb.Backup) error
}

// Config is what Backups is made of. All fields must be set.
type Config struct {
	Meta   *meta.Records
	Store  *store.Store
	Maker  Maker
	Now    func() time.Time
	Logger *slog.Logger
}

// Pauses of the leader after a failure, which double up to the cap, and before it looks again by
// itself. patience is for how long a backup is tried that makes no progress.
const (
	retryPause, maxRetryPause = time.Second, time.Minute
	lookAgain                 = 30 * time.Second
	patience                  = time.Hour
)

// Backups has the backups that the core makes.
type Backups struct {
	config  Config
	meta    *meta.Records
	metrics *metrics
	logs    *logs
	// poked wakes Run. Capacity 1.
	poked chan struct{}

	mu sync.Mutex
	// running is the backup that this member makes; nil: none.
	running *running
	// reached is how far each backup came that was worked on here and has not ended: others may have
	// their turn between two attempts at one.
	reached map[string]*reached
}

// reached is how far a backup came in all attempts: an attempt that comes as far as the one before
// is no progress.
type reached struct {
	units uint32
	steps map[string]bool
	// at is when it made progress last.
	at time.Time
}

// advance notes a progress, and reports whether it is one.
func (r *reached) advance(p *clusterpb.BackupProgress, now time.Time) bool {
	if p.UnitsDone <= r.units && r.steps[p.Step] {
		return false
	}
	r.units, r.at = max(r.units, p.UnitsDone), now
	r.steps[p.Step] = true
	return true
}

// running is a backup that is being made.
type running struct {
	id       string
	cancel   context.CancelFunc
	at       *clusterpb.Timestamp
	progress *clusterpb.BackupProgress
}

// New makes the Backups of a member.
func New(config Config) *Backups {
	b := &Backups{config: config, meta: config.Meta, metrics: newMetrics(),
		poked: make(chan struct{}, 1), reached: make(map[string]*reached)}
	b.logs = newLogs(b)
	return b
}

// Collectors are the metrics.
func (b *Backups) Collectors() []prometheus.Collector { return b.metrics.collectors() }

func (b *Backups) poke() {
	select {
	case b.poked <- struct{}{}:
	default:
	}
}

// progress is how far a backup is; nil if this member does not make it.
func (b *Backups) progress(id string) *clusterpb.BackupProgress {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil || b.running.id != id {
		return nil
	}
	return b.running.progress
}

// stop ends the making of a backup, if this member makes it.
func (b *Backups) stop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != nil && b.running.id == id {
		b.running.cancel()
	}
}

// Run makes backups and writes logs while this member leads, until ctx ends.
func (b *Backups) Run(ctx context.Context) {
	var writing sync.WaitGroup
	if b.config.Maker != nil {
		writing.Go(func() { b.logs.run(ctx) })
	}
	defer writing.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		l, changed := b.config.Store.Leadership()
		wait := lookAgain
		if l.Serving {
			leading, cancel := context.WithCancel(ctx)
			watching := make(chan struct{})
			go func() { // ends the work with the leadership
				defer close(watching)
				select {
				case <-changed:
					cancel()
				case <-leading.Done():
				}
			}()
			more, next, err := b.step(leading)
			cancel()
			<-watching
			if !next.IsZero() {
				wait = max(0, min(wait, next.Sub(b.config.Now())))
			}
			switch {
			case err != nil:
				wait = min(maxRetryPause, retryPause<<min(failures, 10))
				failures++
				if _, refused, _ := hint.Of(err); !refused && ctx.Err() == nil {
					b.config.Logger.Warn("a backup is interrupted; it will be continued", "error", err)
				}
			case more:
				failures, wait = 0, 0
			default:
				failures = 0
			}
		} else {
			b.forget()
			b.metrics.show(nil)
			b.metrics.schedules(nil)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-b.poked:
		case <-timer.C:
		}
	}
}

// forget forgets what is known of the backups of a leadership that is over.
func (b *Backups) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = nil
	clear(b.reached)
}

// step begins the backups that are due by a schedule, and works on the oldest backup that has not
// ended; more says that there was such a backup, next when one is due.
func (b *Backups) step(ctx context.Context) (more bool, next time.Time, err error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return false, next, err
	}
	all, err := loadAll(v)
	if err != nil {
		return false, next, b.meta.Status(err)
	}
	b.metrics.show(all)
	var errs []error
	if b.config.Maker != nil {
		if next, err = b.schedules(ctx, v, all); err != nil {
			errs = append(errs, err)
		}
	}
	for _, r := range all {
		if r.ended() {
			continue
		}
		if err := b.work(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("backup %s: %w", r.Id, err))
			continue // it does not hold up those behind it
		}
		return true, next, nil
	}
	return false, next, errors.Join(errs...)
}

// work makes, restores or undoes a backup, as its state says.
func (b *Backups) work(ctx context.Context, r record) error {
	if r.State == clusterpb.BackupState_BACKUP_RUNNING {
		return b.make(ctx, r)
	}
	if r.Schedule == "" {
		r.Error = "" // of a failure before; that of a scheduled one says why it is undone
	}
	if err := b.config.Maker.Undo(ctx, r.Backup); err != nil {
		if r.Restore != nil || b.config.Maker.Passing(err) {
			return err
		}
		// A target that refuses would do so for as long as nobody mends it.
		r.Error = fmt.Sprintf("what was written of it is still in the target: %v. Once that is mended, "+
			"`tidemark backup delete %s %s` removes it", err, r.Target, r.Id)
	}
	return b.end(ctx, r, clusterpb.BackupState_BACKUP_CANCELLED, nil)
}

// make makes a backup.
func (b *Backups) make(ctx context.Context, r record) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	if b.running == nil || b.running.id != r.Id {
		b.running = &running{id: r.Id}
	}
	far := b.reached[r.Id]
	if far == nil {
		far = &reached{steps: make(map[string]bool), at: b.config.Now()}
		b.reached[r.Id] = far
	}
	b.metrics.progress(far.at)
	run := b.running
	run.cancel = cancel
	b.mu.Unlock()
	tell := func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if far.advance(p, b.config.Now()) {
			b.metrics.progress(far.at)
		}
		run.at, run.progress = at, p
	}
	var err error
	if r.Restore != nil {
		err = b.config.Maker.Restore(ctx, clone(r.Backup), tell,
			func(ctx context.Context, loaded []byte) error { return b.save(ctx, &r, loaded) })
	} else {
		err = b.config.Maker.Make(ctx, clone(r.Backup), tell)
	}
	b.mu.Lock()
	r.At, r.Progress = run.at, run.progress
	stuck := b.config.Now().Sub(far.at) > patience
	b.mu.Unlock()
	switch {
	case err == nil:
		return b.end(ctx, r, clusterpb.BackupState_BACKUP_COMPLETE, nil)
	case ctx.Err() != nil: // cancelled, or another member leads
		return nil
	case b.config.Maker.Passing(err) && !stuck:
		return err
	}
	return b.end(ctx, r, clusterpb.BackupState_BACKUP_FAILED, err)
}

// save stores what a restore has loaded so far. The record may have been changed meanwhile only to
// end it: then the context ends soon, and nothing is stored.
func (b *Backups) save(ctx context.Context, r *record, loaded []byte) error {
	r.Restore.Loaded = loaded
	ok, err := b.write(ctx, *r)
	if err != nil || !ok {
		return err
	}
	v, err := b.meta.View(ctx)
	if err != nil {
		return err
	}
	stored, err := load(v, r.Id)
	if err == nil && stored.Backup != nil && stored.State == r.State {
		r.revision = stored.revision
	}
	return err
}

// end records that a backup has ended, and what that means for its schedule. What was written of a
// scheduled one that has failed is removed: another one will be made.
func (b *Backups) end(ctx context.Context, r record, state clusterpb.BackupState,
	failed error) error {
	r.State, r.EndedUnixMs = state, b.config.Now().UnixMilli()
	if failed != nil {
		r.Error = failed.Error()
	}
	if failed != nil && r.Schedule != "" {
		r.State, r.EndedUnixMs = clusterpb.BackupState_BACKUP_CANCELLING, 0
	} else if state != clusterpb.BackupState_BACKUP_FAILED {
		r.Identity = "" // nothing more is read
		if r.Restore != nil {
			r.Restore.Identities = ""
		}
	}
	if ok, err := b.writeEnd(ctx, r, failed); err != nil || !ok {
		return err // it is looked at again
	}
	b.mu.Lock()
	b.running = nil
	delete(b.reached, r.Id)
	b.mu.Unlock()
	b.metrics.ended(r, failed != nil)
	if failed != nil {
		b.config.Logger.Error("A BACKUP FAILED", "backup", r.Id, "target", r.Target, "schedule",
			r.Schedule, "error", failed)
	} else {
		b.config.Logger.Info("a backup has ended", "backup", r.Id, "target", r.Target, "state", state)
	}
	return nil
}

// writeEnd stores a backup that has ended together with its schedule, which its log may change
// meanwhile; false: another call has changed the backup.
func (b *Backups) writeEnd(ctx context.Context, r record, failed error) (bool, error) {
	for range attempts {
		compares := []*storepb.Compare{store.ModifiedAt(key(r.Id), r.revision)}
		ops := []*storepb.Op{store.Put(key(r.Id), meta.Encode(r.Backup))}
		s, err := b.completed(ctx, r, failed)
		if err != nil {
			return false, err
		}
		if s != nil {
			compares, ops = append(compares, s.unchanged()), append(ops, s.put())
		}
		if ok, err := b.meta.Commit(ctx, compares, ops...); err != nil || ok || s == nil {
			return ok, err
		}
	}
	return false, nil
}
