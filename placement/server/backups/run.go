package backups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

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
			go func() { // ends the work when the leadership ends
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

// forget drops the state of a leadership that is over.
func (b *Backups) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = nil
	clear(b.reached)
	clear(b.vain)
}

// step begins the backups that are due by a schedule, and works on the first backup that has not
// ended, in the order of inTurn. more is set if there was such a backup. next is the time at which
// the next backup is due.
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
	failed := false
	for _, r := range b.inTurn(all) {
		cancelling := r.State == clusterpb.BackupState_BACKUP_CANCELLING
		if failed && cancelling {
			continue // until the next step, so that new backups do not wait for all of them
		}
		if err := b.work(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("backup %s: %w", r.Id, err))
			failed = failed || cancelling
			continue // it does not block the backups after it
		}
		return true, next, nil
	}
	return false, next, errors.Join(errs...)
}

// inTurn returns the backups that have not ended, in the order in which a step works on them: those
// that were cancelled, those that are to be made, and one that was cancelled and whose objects were
// tried to be removed in vain. A target that does not answer takes minutes with each try, and others
// do not wait for that.
func (b *Backups) inTurn(all []record) (turn []record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var running []record
	var again *record
	for i, r := range all {
		tried, inVain := b.vain[r.Id]
		switch {
		case r.ended():
		case r.State != clusterpb.BackupState_BACKUP_CANCELLING:
			running = append(running, r)
		case !inVain:
			turn = append(turn, r)
		case again == nil || tried.last.Before(b.vain[again.Id].last):
			again = &all[i]
		}
	}
	if turn = append(turn, running...); again != nil {
		turn = append(turn, *again)
	}
	return turn
}

// triedInVain records a vain try, and reports whether no other try is to follow.
func (b *Backups) triedInVain(id string, began time.Time) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tries, tried := b.vain[id]
	if !tried {
		tries.first = began
	}
	tries.last = began
	b.vain[id] = tries
	return b.config.Now().Sub(tries.first) > patience
}

// work makes, restores or undoes a backup, as its state says.
func (b *Backups) work(ctx context.Context, r record) error {
	if r.State == clusterpb.BackupState_BACKUP_RUNNING {
		return b.make(ctx, r)
	}
	if r.Schedule == "" {
		r.Error = "" // an earlier failure; a scheduled backup keeps the error that ended it
	}
	began := b.config.Now()
	if err := b.config.Maker.Undo(ctx, r.Backup); err != nil {
		if ctx.Err() != nil {
			return err
		}
		over := b.triedInVain(r.Id, began)
		if r.Restore != nil || b.config.Maker.Passing(err) && !over {
			return err
		}
		// A target that refuses an operation refuses the operation until the cause is repaired. A target
		// that does not answer for so long may never answer again.
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
	// The record may be hours old: other backups were made since it was read. A call that has changed
	// it found nothing to stop. A later call stops what begins here.
	v, err := b.meta.View(ctx)
	if err != nil {
		return err
	}
	if r, err = load(v, r.Id); err != nil || r.Backup == nil ||
		r.State != clusterpb.BackupState_BACKUP_RUNNING {
		return b.meta.Status(err)
	}
	tell := func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if far.advance(p, b.config.Now()) {
			b.metrics.progress(far.at)
		}
		run.at, run.progress = at, p
	}
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
	case ctx.Err() != nil || errors.Is(err, errChanged):
		return nil // the backup was cancelled, or another member leads
	case b.config.Maker.Passing(err) && !stuck:
		return err
	}
	return b.end(ctx, r, clusterpb.BackupState_BACKUP_FAILED, err)
}

// errChanged: another call has changed the record of a backup that is made.
var errChanged = errors.New("the backup was changed meanwhile")

// save stores what a restore has loaded so far. If another call has changed the record meanwhile,
// it was to end the restore. Then nothing is stored, and the restore ends with errChanged.
func (b *Backups) save(ctx context.Context, r *record, loaded []byte) error {
	r.Restore.Loaded = loaded
	switch ok, err := b.write(ctx, *r); {
	case err != nil:
		return err
	case !ok:
		return errChanged
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

// end records that a backup has ended, and the consequences for its schedule. If a scheduled backup
// has failed, its objects are removed, because another backup will be made.
func (b *Backups) end(ctx context.Context, r record, state clusterpb.BackupState,
	failed error) error {
	r.State, r.EndedUnixMs = state, b.config.Now().UnixMilli()
	if failed != nil {
		r.Error = failed.Error()
	}
	if failed != nil && r.Schedule != "" {
		r.State, r.EndedUnixMs = clusterpb.BackupState_BACKUP_CANCELLING, 0
	} else if state != clusterpb.BackupState_BACKUP_FAILED {
		r.Identity = "" // no object is read any more
		if r.Restore != nil {
			r.Restore.Identities = ""
		}
	}
	if ok, err := b.writeEnd(ctx, r, failed); err != nil || !ok {
		return err // the backup will be looked at again
	}
	b.mu.Lock()
	b.running = nil
	delete(b.reached, r.Id)
	delete(b.vain, r.Id)
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

// writeEnd stores the end of a backup together with its schedule. The schedule's log may change the
// schedule at the same time. writeEnd returns false if another call has changed the backup.
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
