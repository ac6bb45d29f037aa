package restores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

const (
	// jobPatience is how long a job may take. In calm a longer job is a violation.
	jobPatience = 90 * time.Second
	// look is the time between two looks at the progress of a job.
	look = 200 * time.Millisecond
	// scheduleName is the name of the only schedule.
	scheduleName = "restores"
)

// try repeats a call until it succeeds or the context ends.
func (s *session) try(ctx context.Context, call func(context.Context) error) error {
	for {
		err := limited(ctx, attemptPatience, call)
		if err == nil || !pause(ctx, look) {
			return err
		}
	}
}

// job starts a backup or a restore, and waits for its end. It reads the sources as soon as the
// moment of the job is known.
func (o *operation) job(ctx context.Context, what string, options admin.BackupOptions) (
	job admin.BackupInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobPatience)
	defer cancel()
	ended := o.client.Report(ctx, what)
	defer func() { ended(err) }()
	options.ID = o.newID()
	if err := o.try(ctx, func(ctx context.Context) (err error) {
		job, err = o.admin.CreateBackup(ctx, options)
		return err
	}); err != nil {
		return job, err
	}
	for {
		err := limited(ctx, attemptPatience, func(ctx context.Context) (err error) {
			job, err = o.admin.Backup(ctx, options.ID)
			return err
		})
		switch {
		case err == nil && job.State == admin.BackupComplete:
			return job, nil
		case err == nil && job.Over():
			return job, o.failed(what, job.ID, job.Error)
		case err == nil && !job.At.IsZero() && options.Restore == nil:
			// The moment may change with the core's leader. Sources that are not read now are read
			// later.
			_ = limited(ctx, attemptPatience, func(ctx context.Context) error {
				return o.read(ctx, job.At)
			})
		}
		if !pause(ctx, look) {
			return job, fmt.Errorf("%w: it is %s at %q, %d of %d parts, %d failures, the last: %s",
				errors.Join(ctx.Err(), err), job.State, job.Step, job.UnitsDone, job.Units, job.Failures,
				job.LastFailure)
		}
	}
}

// errHonest says that a job failed for a reason that the documentation names.
var errHonest = errors.New("history is collected")

// failed returns the error of a job that has ended and is not complete. Faults interrupt jobs, but
// must not make them fail. So a failed job is a violation, unless it failed because history was
// collected.
func (o *operation) failed(what, id, why string) error {
	if strings.Contains(why, "history") {
		return fmt.Errorf("%w: %s", errHonest, why)
	}
	o.run.Violation("restores: the %s %s failed: %s", what, id, why)
	return errors.New(why)
}

// awaitSchedule waits until reached returns true for the schedule.
func (o *operation) awaitSchedule(ctx context.Context, what string,
	reached func(*admin.BackupScheduleInfo) bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, jobPatience)
	defer cancel()
	ended := o.client.Report(ctx, what)
	defer func() { ended(err) }()
	for {
		var all []admin.BackupScheduleInfo
		err := limited(ctx, attemptPatience, func(ctx context.Context) (err error) {
			all, err = o.admin.BackupSchedules(ctx)
			return err
		})
		at := slices.IndexFunc(all,
			func(s admin.BackupScheduleInfo) bool { return s.Name == scheduleName })
		var s admin.BackupScheduleInfo
		if at >= 0 {
			s = all[at]
		}
		switch {
		case err == nil && at < 0:
			return errors.New("there is no schedule")
		case err == nil && reached(&s):
			return nil
		case err == nil && s.Error != "":
			return o.failed(what, s.Running, s.Error)
		}
		if !pause(ctx, look) {
			return fmt.Errorf("%w: the last backup is %q, the log is at %v, its error is %q",
				errors.Join(ctx.Err(), err), s.Last, s.LogAt, s.LogError)
		}
	}
}
