package restores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// session has the state that the operations of one client share.
type session struct {
	*Restores
	run    *driver.Run
	client *driver.Client
	sdk    *kv.Client
	admin  *admin.Client
	random *rand.Rand
	// restored is the number of restores so far.
	restored int
}

// operation is one backup, or a chain of backups, with its restore and comparison.
type operation struct {
	*session
	kind kind
	// backups is the number of backups in a chain.
	backups int
	// keyspaces are the restored keyspaces, which are compared with their sources.
	keyspaces []string
	// sources has the rows of the keyspaces at a moment.
	sources map[kv.Timestamp]source
}

// kind says what is restored.
type kind int

const (
	// chain: a full backup and the incremental backups that continue it.
	chain kind = iota
	// logged: a moment that only a schedule's log has.
	logged
)

// source has the rows of keyspaces at a moment; nil: history was collected before they were read.
type source map[string][]kv.Pair

const (
	// operationPatience bounds the time of all jobs of one operation. In calm a job of a run's
	// small keyspaces takes seconds.
	operationPatience = 3 * time.Minute
	// mostRestored is the largest number of keyspaces that an operation restores besides the trace.
	mostRestored = 2
)

// operate carries out an operation, and removes everything that it has made.
func (s *session) operate(ctx context.Context) {
	o := &operation{session: s, kind: chain, backups: 1}
	switch s.random.IntN(5) {
	case 0, 1:
		o.backups += 1 + s.random.IntN(2)
	case 2, 3:
		o.kind = logged
	}
	limit, cancel := context.WithTimeout(ctx, operationPatience)
	err := o.do(limit)
	cancel()
	s.run.Count("restored and compared", err)
	if err != nil && ctx.Err() == nil {
		s.run.Event("restores: given up: %v", err)
	}
	limit, cancel = context.WithTimeout(ctx, operationPatience)
	defer cancel()
	if err := s.clean(limit); err != nil && ctx.Err() == nil {
		s.run.Event("restores: what an operation has made is removed later: %v", err)
	}
}

// do backs up, restores and compares.
func (o *operation) do(ctx context.Context) error {
	o.sources = make(map[kv.Timestamp]source)
	if err := o.choose(ctx); err != nil {
		return err
	}
	if o.kind == logged {
		return o.doLogged(ctx)
	}
	parent := ""
	var made []admin.BackupInfo
	for range o.backups {
		what := "backup"
		if parent != "" {
			what = "incremental backup"
			if !pause(ctx, time.Duration(o.random.Int64N(int64(5*time.Second)))) {
				return ctx.Err()
			}
		}
		job, err := o.momentOf(ctx, what, func(ctx context.Context) (admin.BackupInfo, error) {
			return o.job(ctx, what, admin.BackupOptions{Target: o.Target, Parent: parent,
				Include: o.keyspaces})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		made, parent = append(made, job), job.ID
	}
	// Most operations restore the last backup of the chain, some restore an earlier one.
	one := made[len(made)-1]
	if o.random.IntN(3) == 0 {
		one = made[o.random.IntN(len(made))]
	}
	if err := o.compareCoordination(ctx, one.ID, "", kv.Timestamp{}); err != nil {
		return fmt.Errorf("the coordination store of %s: %w", one.ID, err)
	}
	return o.restore(ctx, &admin.RestoreOptions{Backup: one.ID}, one.At)
}

// momentOf makes a moment restorable by do, which returns a job. It checks that the job's moment
// lies between two writes: one that was acknowledged before do, and one that began after do.
func (o *operation) momentOf(ctx context.Context, what string,
	do func(context.Context) (admin.BackupInfo, error)) (admin.BackupInfo, error) {
	before, err := o.mark(ctx)
	if err != nil {
		return admin.BackupInfo{}, err
	}
	job, err := do(ctx)
	if err != nil {
		return job, err
	}
	after, err := o.mark(ctx)
	if err != nil {
		return job, err
	}
	if job.At.LessEq(before) || after.LessEq(job.At) {
		o.run.Violation("restores: the %s %s is of %v: it was asked for when a write of %v was "+
			"acknowledged, and was complete before one of %v began", what, job.ID, job.At, before, after)
	}
	return job, nil
}

// mark writes a row, and returns its version.
func (o *operation) mark(ctx context.Context) (at kv.Timestamp, err error) {
	err = o.try(ctx, func(ctx context.Context) (err error) {
		at, err = o.sdk.Keyspace(Name).Put(ctx, []byte("mark"), fmt.Appendf(nil, "%d",
			o.random.Uint64()))
		return err
	})
	return at, err
}

// choose draws the keyspaces: the trace, and some of other workloads.
func (o *operation) choose(ctx context.Context) error {
	var all []string
	err := o.try(ctx, func(ctx context.Context) error {
		keyspaces, err := o.admin.Keyspaces(ctx)
		all = nil
		for _, ks := range keyspaces {
			if ks.Name != Name && !strings.HasPrefix(ks.Name, restoredPrefix) && !hidden(ks.Name) {
				all = append(all, ks.Name)
			}
		}
		return err
	})
	o.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	o.keyspaces = append([]string{Name}, all[:min(len(all), 1+o.random.IntN(mostRestored))]...)
	return err
}

// hidden says whether a restore fills the keyspace at present.
func hidden(name string) bool { return strings.HasPrefix(name, "restore/") }

// doLogged restores a moment that lies between backups.
func (o *operation) doLogged(ctx context.Context) error {
	err := o.try(ctx, func(ctx context.Context) error {
		_, err := o.admin.SetBackupSchedule(ctx, admin.BackupSchedule{Name: scheduleName,
			Target: o.Target, Include: o.keyspaces, Full: time.Hour, Incremental: time.Minute, Log: time.Second})
		return err
	})
	if err != nil {
		return fmt.Errorf("the schedule: %w", err)
	}
	err = o.awaitSchedule(ctx, "scheduled backup", func(s *admin.BackupScheduleInfo) bool {
		return s.Last != "" && s.LastAt.Less(s.LogAt)
	})
	if err != nil || !pause(ctx, time.Duration(o.random.Int64N(int64(6*time.Second)))) {
		return err
	}
	at, err := o.mark(ctx)
	if err != nil {
		return err
	}
	if err := o.read(ctx, at); err != nil {
		return fmt.Errorf("the source at %v: %w", at, err)
	}
	err = o.awaitSchedule(ctx, "log round", func(s *admin.BackupScheduleInfo) bool {
		return at.LessEq(s.LogAt)
	})
	if err != nil {
		return fmt.Errorf("the log up to %v: %w", at, err)
	}
	var found resolved
	err = o.withCatalog(ctx, func(ctx context.Context, c opened) (err error) {
		found, err = c.Resolve(ctx, at, func(keyspace string) bool {
			return slices.Contains(o.keyspaces, keyspace)
		})
		return err
	})
	if err != nil {
		// A log that was started again has a gap. The schedule reports the gap.
		return fmt.Errorf("the moment %v: %w", at, err)
	}
	if err := o.compareCoordination(ctx, found.Backup, found.Log, at); err != nil {
		return fmt.Errorf("the coordination store at %v: %w", at, err)
	}
	return o.restore(ctx, &admin.RestoreOptions{At: at}, at)
}

// restore restores the keyspaces under other names, and compares them with their sources.
func (o *operation) restore(ctx context.Context, r *admin.RestoreOptions, at kv.Timestamp) error {
	if err := o.read(ctx, at); err != nil {
		return fmt.Errorf("the source at %v: %w", at, err)
	}
	o.restored++
	r.Names = make(map[string]string)
	for _, name := range o.keyspaces {
		r.Names[name] = fmt.Sprintf("%s%d-%s", restoredPrefix, o.restored, name)
	}
	job, err := o.job(ctx, "restore", admin.BackupOptions{Target: o.Target, Include: o.keyspaces,
		Restore: r})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if job.At != at {
		o.run.Violation("restores: the restore %s is of %v, and %v was asked for", job.ID, job.At, at)
	}
	// Compare twice, because nothing may be written to a restored keyspace after the restore has
	// ended.
	for range 2 {
		for _, name := range o.keyspaces {
			if err := o.compare(ctx, name, r.Names[name], at); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if !pause(ctx, time.Duration(o.random.Int64N(int64(2*time.Second)))) {
			return ctx.Err()
		}
	}
	return nil
}

// newID returns the id of a new job. Repetitions of a request use the same id.
func (o *operation) newID() string { return manifest.NewID(time.Now(), o.random.Uint32()) }

// errCollected says that the history at a moment was collected before it was read.
var errCollected = errors.New("the history of the source is collected")

// read reads the sources at a moment, unless they have been read.
func (o *operation) read(ctx context.Context, at kv.Timestamp) error {
	if o.sources[at] == nil {
		o.sources[at] = make(source)
	}
	for _, name := range o.keyspaces {
		if _, known := o.sources[at][name]; known {
			continue
		}
		err := o.try(ctx, func(ctx context.Context) (err error) {
			o.sources[at][name], err = rowsOf(o.sdk.Keyspace(name).Scan(ctx, kv.At(at)))
			if errors.Is(err, kv.ErrTimestampTooOld) {
				o.sources[at][name] = nil
				return nil
			}
			if err != nil {
				delete(o.sources[at], name)
			}
			return err
		})
		if err != nil {
			return err
		}
		slices.SortFunc(o.sources[at][name], byKey)
	}
	return nil
}
