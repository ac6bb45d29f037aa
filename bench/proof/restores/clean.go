package restores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// opened is the target, opened by this process.
type opened struct {
	*catalog.Catalog
	target.Target
}

// resolved says how the state at a moment can be restored.
type resolved = catalog.Resolved

// withCatalog opens the target, calls do, and closes the target.
func (s *session) withCatalog(ctx context.Context,
	do func(context.Context, opened) error) (err error) {
	open := s.Open
	if open == nil {
		open = func(ctx context.Context) (target.Target, error) {
			return target.Open(ctx, s.Target, target.Options{})
		}
	}
	store, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(ctx, opened{catalog.New(store, nil), store})
}

// clean ends all jobs, drops the restored keyspaces, and empties the target. It looks for all of
// this in the cluster and in the target, so clean can be repeated.
func (s *session) clean(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"the schedule", s.endSchedule}, {"jobs", s.endJobs}, {"the schedule", s.endSchedule},
		{"restored keyspaces", s.drop}, {"the target", s.empty},
	} {
		if err := s.try(ctx, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// endSchedule deletes the schedule. If a running backup of the schedule prevents that, endSchedule
// cancels the backup, and returns the error.
func (s *session) endSchedule(ctx context.Context) error {
	all, err := s.admin.BackupSchedules(ctx)
	for _, one := range all {
		if err = s.admin.DeleteBackupSchedule(ctx, one.Name); err != nil && one.Running != "" {
			if _, err := s.admin.CancelBackup(ctx, one.Running); err != nil {
				return err
			}
		}
	}
	return err
}

// endJobs cancels jobs that are not over. It returns an error as long as there are such jobs.
func (s *session) endJobs(ctx context.Context) error {
	all, err := s.admin.Backups(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, job := range all {
		if job.Over() {
			continue
		}
		errs = append(errs, fmt.Errorf("%s is %s", job.ID, job.State))
		if job.State == admin.BackupRunning {
			_, err := s.admin.CancelBackup(ctx, job.ID)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// drop drops restored keyspaces.
func (s *session) drop(ctx context.Context) error {
	all, err := s.admin.Keyspaces(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, ks := range all {
		if strings.HasPrefix(ks.Name, restoredPrefix) {
			if err := s.sdk.DropKeyspace(ctx, ks.Name); !errors.Is(err, kv.ErrKeyspaceNotFound) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// empty removes all backups and logs. It removes a backup before the backups that it continues.
func (s *session) empty(ctx context.Context) error {
	return s.withCatalog(ctx, func(ctx context.Context, c opened) error {
		contents, err := c.Catalog.List(ctx)
		if err != nil {
			return err
		}
		var ids []string
		for _, head := range slices.Backward(contents.Complete.Sorted()) {
			ids = append(ids, head.ID)
		}
		for _, u := range contents.Unfinished {
			ids = append(ids, u.ID)
		}
		for _, id := range ids {
			if _, err := c.Catalog.Delete(ctx, id); err != nil {
				return err
			}
		}
		logs, _, err := c.Logs(ctx)
		for _, log := range logs {
			if _, err := c.DeleteLog(ctx, log.ID); err != nil {
				return err
			}
		}
		return err
	})
}

// nothingIsLeft looks for remains of jobs.
func (s *session) nothingIsLeft(ctx context.Context) error {
	all, err := s.admin.Keyspaces(ctx)
	if err != nil {
		return err
	}
	for _, ks := range all {
		if hidden(ks.Name) {
			s.run.Violation("restores: the keyspace %s is still hidden, and no restore is under way",
				ks.Name)
			continue
		}
		consumers, err := s.sdk.Keyspace(ks.Name).Consumers(ctx)
		if errors.Is(err, kv.ErrKeyspaceNotFound) {
			continue // the keyspace is being dropped
		}
		if err != nil {
			return err
		}
		for _, consumer := range consumers {
			if strings.HasPrefix(consumer.Name, "backup/") {
				s.run.Violation("restores: %s still has the consumer %s, and no backup is being made",
					ks.Name, consumer.Name)
			}
		}
	}
	return s.withCatalog(ctx, func(ctx context.Context, c opened) error {
		for object, err := range c.Target.List(ctx, "") {
			if err != nil {
				return err
			}
			s.run.Violation("restores: %s is still in the target", object.Name)
		}
		return nil
	})
}
