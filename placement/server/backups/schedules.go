package backups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Limits of schedules.
const (
	// maxSchedules limits the number of schedules. maxScheduleName limits the length of a name.
	maxSchedules, maxScheduleName = 16, 40
	// minInterval is the shortest interval of backups, and minLog the shortest interval of a log.
	// maxInterval limits all durations of a schedule.
	minInterval, minLog, maxInterval = time.Minute, time.Second, 10 * 366 * 24 * time.Hour
	// minScheduleKeep is the smallest default for the time that history is kept for the next backup.
	minScheduleKeep = 24 * time.Hour
	// scheduleRetry and maxScheduleRetry are the first and the longest pause after a scheduled backup
	// has failed. The pause doubles.
	scheduleRetry, maxScheduleRetry = time.Minute, time.Hour
	// expireEvery is the interval at which expired backups and rounds are removed.
	expireEvery = time.Hour
)

// anyID is an id that no backup has. It is used to check the objects that a schedule would make.
const anyID = "20260101T000000Z-00000000"

// loadSchedules reads all schedules.
func loadSchedules(v *store.View) (all []schedule, err error) {
	for kv, err := range v.All([]byte(meta.SchedulePrefix)) {
		if err != nil {
			return nil, err
		}
		s := new(clusterpb.BackupSchedule)
		if err := proto.Unmarshal(kv.Value, s); err != nil {
			return nil, meta.Malformed(kv.Key, err)
		}
		all = append(all, schedule{s, kv.ModRevision})
	}
	return all, nil
}

// invalidSchedule returns an error if a schedule is not valid. It fills in defaults.
func invalidSchedule(s *clusterpb.BackupSchedule) error {
	bad := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, format, args...)
	}
	const most = uint64(maxInterval / time.Millisecond)
	switch {
	case s.GetName() == "" || len(s.Name) > maxScheduleName ||
		strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "":
		return bad("%q is not the name of a schedule: it has 1 to %d of a-z, 0-9 and hyphens", s.GetName(),
			maxScheduleName)
	case max(s.FullMillis, s.IncrementalMillis, s.LogMillis, s.RetentionMillis) > most:
		return bad("the times of a schedule are at most %s", maxInterval)
	case millis(s.FullMillis) < minInterval:
		return bad("a full backup is made every %s at most, and not every %s", minInterval,
			millis(s.FullMillis))
	case s.IncrementalMillis != 0 && millis(s.IncrementalMillis) < minInterval:
		return bad("an incremental backup is made every %s at most, and not every %s", minInterval,
			millis(s.IncrementalMillis))
	case s.IncrementalMillis >= s.FullMillis:
		return bad("incremental backups are made between the full ones: every %s is not more often than "+
			"every %s", millis(s.IncrementalMillis), millis(s.FullMillis))
	case s.LogMillis != 0 && millis(s.LogMillis) < minLog:
		return bad("the log is written every %s at most, and not every %s", minLog, millis(s.LogMillis))
	case s.RetentionMillis != 0 && s.RetentionMillis < s.FullMillis:
		return bad("what is kept for %s is not restorable with a full backup every %s: keep it for longer",
			millis(s.RetentionMillis), millis(s.FullMillis))
	}
	if s.KeepMillis == 0 {
		interval := millis(s.IncrementalMillis)
		s.KeepMillis = uint64(min(maxKeep, max(minScheduleKeep, 3*interval)).Milliseconds())
	}
	return invalid(&clusterpb.Backup{Id: anyID, Target: s.Target,
		Include: s.Include, Exclude: s.Exclude, Recipients: s.Recipients, KeepMillis: s.KeepMillis})
}

// SetSchedule creates or changes a schedule. Only the leader answers.
func (b *Backups) SetSchedule(
	ctx context.Context, r *clusterpb.SetBackupScheduleRequest,
) (*clusterpb.SetBackupScheduleResponse, error) {
	if b.config.Maker == nil {
		return nil, status.Error(codes.Unimplemented, "this cluster makes no backups")
	}
	change := b.changeSchedule
	if r.Paused == nil && !r.Now {
		asked := r.GetSchedule()
		if asked == nil {
			asked = new(clusterpb.BackupSchedule)
		}
		if err := invalidSchedule(asked); err != nil {
			return nil, err
		}
		if err := b.config.Maker.Check(&clusterpb.Backup{Id: anyID,
			Target: asked.Target, Include: asked.Include, Exclude: asked.Exclude,
			Recipients: asked.Recipients}); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		change = b.putSchedule
	}
	for range attempts {
		v, done, err := b.meta.ViewInTurn(ctx)
		if err != nil {
			return nil, err
		}
		s, written, err := change(ctx, v, r)
		done()
		if err != nil {
			return nil, err
		}
		if written {
			b.config.Logger.Info("a schedule of backups was set", "schedule", s.Name, "target", s.Target,
				"paused", s.Paused)
			b.poke()
			b.logs.poke()
			return &clusterpb.SetBackupScheduleResponse{Schedule: s.shown("")}, nil
		}
	}
	return nil, meta.Conflict("schedule " + r.GetSchedule().GetName())
}

// changeSchedule pauses or resumes a schedule, or has a backup begin.
func (b *Backups) changeSchedule(ctx context.Context, v *store.View,
	r *clusterpb.SetBackupScheduleRequest) (schedule, bool, error) {
	s, err := loadSchedule(v, r.GetSchedule().GetName())
	if err != nil {
		return s, false, b.meta.Status(err)
	}
	if s.BackupSchedule == nil {
		return s, false, noSchedule(r.GetSchedule().GetName())
	}
	if r.Paused != nil {
		s.Paused = *r.Paused
	}
	s.Now = s.Now || r.Now
	meta.Answer(ctx, &clusterpb.SetBackupScheduleResponse{Schedule: s.shown("")})
	ok, err := b.writeSchedule(ctx, s)
	return s, ok, err
}

func noSchedule(name string) error {
	return status.Errorf(codes.NotFound, "there is no schedule %q", name)
}

// putSchedule stores a schedule. It keeps the state of an earlier schedule of the same name.
func (b *Backups) putSchedule(ctx context.Context, v *store.View,
	r *clusterpb.SetBackupScheduleRequest) (schedule, bool, error) {
	all, err := loadSchedules(v)
	if err != nil {
		return schedule{}, false, b.meta.Status(err)
	}
	asked := r.GetSchedule()
	s := schedule{BackupSchedule: &clusterpb.BackupSchedule{Name: asked.Name, Target: asked.Target,
		Include: asked.Include, Exclude: asked.Exclude, Recipients: asked.Recipients,
		BytesPerSecond: asked.BytesPerSecond, FullMillis: asked.FullMillis,
		IncrementalMillis: asked.IncrementalMillis, LogMillis: asked.LogMillis,
		RetentionMillis: asked.RetentionMillis, KeepMillis: asked.KeepMillis, Paused: asked.Paused,
		CreatedUnixMs: b.config.Now().UnixMilli()}}
	for _, before := range all {
		if before.Name != asked.Name {
			continue
		}
		if r.OnlyNew {
			return s, false, status.Errorf(codes.AlreadyExists, "there is a schedule %q already; "+
				"`tidemark backup schedule set` changes it", asked.Name)
		}
		s.revision, s.CreatedUnixMs = before.revision, before.CreatedUnixMs
		if before.Target == s.Target { // existing backups can be continued
			s.Last, s.LastAt, s.FullAt, s.Running = before.Last, before.LastAt, before.FullAt, before.Running
			s.Error, s.ErrorUnixMs, s.Failures = before.Error, before.ErrorUnixMs, before.Failures
			s.Broken, s.Now = before.Broken, before.Now
		}
		if sameLog(before.BackupSchedule, s.BackupSchedule) {
			s.Log, s.LogAt, s.LogRound, s.Identity = before.Log, before.LogAt, before.LogRound,
				before.Identity
		}
	}
	if s.revision == 0 && len(all) >= maxSchedules {
		return s, false, status.Errorf(codes.ResourceExhausted, "there are %d schedules, and no more are "+
			"possible", len(all))
	}
	if s.LogMillis != 0 && s.Log == "" {
		if err := b.newLog(&s); err != nil {
			return s, false, err
		}
		s.Now = s.Now || s.Last != "" // with the log, moments after the next backup can be restored
	}
	meta.Answer(ctx, &clusterpb.SetBackupScheduleResponse{Schedule: s.shown("")})
	ok, err := b.writeSchedule(ctx, s)
	return s, ok, err
}

// sameLog reports whether two schedules can share one log.
func sameLog(a, b *clusterpb.BackupSchedule) bool {
	return a.Target == b.Target && a.LogMillis != 0 && b.LogMillis != 0 &&
		slices.Equal(a.Include, b.Include) && slices.Equal(a.Exclude, b.Exclude) &&
		slices.Equal(a.Recipients, b.Recipients)
}

// newLog gives a schedule a new log.
func (b *Backups) newLog(s *schedule) (err error) {
	s.Log = b.config.Maker.NewID(b.config.Now())
	s.LogAt, s.LogRound, s.Identity = nil, nil, ""
	if len(s.Recipients) > 0 {
		if s.Identity, err = b.config.Maker.NewIdentity(); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	return nil
}

// writeSchedule stores a changed schedule. It returns false if another call has changed the
// schedule.
func (b *Backups) writeSchedule(ctx context.Context, s schedule) (bool, error) {
	return b.meta.Commit(ctx, []*storepb.Compare{s.unchanged()}, s.put())
}

// unchanged returns the condition that the stored schedule is the one that was read. put returns
// the operation that stores the schedule.
func (s schedule) unchanged() *storepb.Compare {
	if s.revision == 0 {
		return store.Absent(scheduleKey(s.Name))
	}
	return store.ModifiedAt(scheduleKey(s.Name), s.revision)
}

func (s schedule) put() *storepb.Op {
	return store.Put(scheduleKey(s.Name), meta.Encode(s.BackupSchedule))
}

// ListSchedules lists the schedules. Only the leader answers.
func (b *Backups) ListSchedules(
	ctx context.Context, _ *clusterpb.ListBackupSchedulesRequest,
) (*clusterpb.ListBackupSchedulesResponse, error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	all, err := loadSchedules(v)
	if err != nil {
		return nil, b.meta.Status(err)
	}
	answer := new(clusterpb.ListBackupSchedulesResponse)
	for _, s := range all {
		answer.Schedules = append(answer.Schedules, s.shown(b.logs.failure(s.Name)))
	}
	return answer, nil
}

// DeleteSchedule ends a schedule and the protection of history for it. Only the leader answers. It
// may be repeated: after a failure the schedule stays paused.
func (b *Backups) DeleteSchedule(
	ctx context.Context, r *clusterpb.DeleteBackupScheduleRequest,
) (*clusterpb.DeleteBackupScheduleResponse, error) {
	for range attempts {
		v, err := b.meta.View(ctx)
		if err != nil {
			return nil, err
		}
		s, err := loadSchedule(v, r.GetName())
		switch {
		case err != nil:
			return nil, b.meta.Status(err)
		case s.BackupSchedule == nil:
			return nil, noSchedule(r.GetName())
		}
		if !s.Paused { // from now on nothing begins
			s.Paused = true
			if ok, err := b.writeSchedule(ctx, s); err != nil {
				return nil, err
			} else if ok {
				b.logs.stop(s.Name)
			}
			continue
		}
		if s.Running != "" {
			if r, err := load(v, s.Running); err != nil {
				return nil, b.meta.Status(err)
			} else if r.Backup != nil && !r.ended() {
				return nil, status.Errorf(codes.FailedPrecondition, "the backup %s of the schedule %s is being "+
					"made. The schedule is paused now. Wait for the backup, or end it by `tidemark backup "+
					"cancel %s`, and delete the schedule again", r.Id, s.Name, r.Id)
			}
		}
		if err := b.config.Maker.Release(ctx, s.BackupSchedule); err != nil {
			return nil, err
		}
		answer := new(clusterpb.DeleteBackupScheduleResponse)
		meta.Answer(ctx, answer)
		ok, err := b.meta.Commit(ctx, []*storepb.Compare{s.unchanged()},
			store.Delete(scheduleKey(s.Name)))
		if err != nil {
			return nil, err
		}
		if ok {
			b.config.Logger.Info("a schedule of backups was deleted", "schedule", s.Name)
			b.poke()
			b.logs.poke()
			return answer, nil
		}
	}
	return nil, meta.Conflict("schedule " + r.GetName())
}

// due says which backup of a schedule must begin now: a full one, an incremental one, or none. If
// none, at is the time at which the next one is due.
func (s schedule) due(now time.Time) (full, incremental bool, at time.Time) {
	next := func(last *clusterpb.Timestamp, interval time.Duration) time.Time {
		if last == nil {
			return time.Time{}
		}
		return wire.FromClusterTimestamp(last).Time().Add(interval)
	}
	at = next(s.FullAt, s.full())
	if s.Broken || s.Last == "" {
		at = time.Time{}
	}
	fullAt := at
	if s.incremental() != 0 && next(s.LastAt, s.incremental()).Before(at) {
		at = next(s.LastAt, s.incremental())
	}
	if s.Failures > 0 {
		pause := min(maxScheduleRetry, scheduleRetry<<min(s.Failures-1, 10))
		// A time that lies further ahead was written by a member whose clock was wrong.
		again := time.UnixMilli(s.ErrorUnixMs).Add(pause)
		if at.Before(again) && !again.After(now.Add(maxScheduleRetry)) {
			at = again
		}
	}
	if s.Now {
		at = time.Time{}
	}
	if at.After(now) {
		return false, false, at
	}
	full = !now.Before(fullAt) || s.incremental() == 0
	return full, !full, at
}

// logPatience is the time for which a backup waits until a new log begins.
const logPatience = time.Minute

// awaitsLog returns the time until which a backup waits for the beginning of the log. Moments can
// be restored only from a backup that was made after the log began.
func (s schedule) awaitsLog() time.Time {
	moment, _, _ := strings.Cut(s.Log, "-")
	began, err := time.Parse("20060102T150405Z", moment)
	if s.LogMillis == 0 || s.LogAt != nil || err != nil {
		return time.Time{}
	}
	return began.Add(logPatience)
}

// schedules begins the backups that are due, and removes expired backups and rounds. next is the
// time at which it must look again.
func (b *Backups) schedules(ctx context.Context, v *store.View, jobs []record) (next time.Time,
	err error) {
	all, err := loadSchedules(v)
	if err != nil {
		return next, b.meta.Status(err)
	}
	now := b.config.Now()
	b.metrics.schedules(all)
	var errs []error
	for _, s := range all {
		if s.Paused {
			continue
		}
		at, err := b.schedule(ctx, s, jobs, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", s.Name, err))
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, errors.Join(errs...)
}

// schedule begins a backup of a schedule if one is due.
func (b *Backups) schedule(ctx context.Context, s schedule, jobs []record, now time.Time) (time.Time,
	error) {
	for _, r := range jobs {
		if r.Id == s.Running && !r.ended() {
			return time.Time{}, nil
		}
	}
	if err := b.expire(ctx, &s, now); err != nil {
		b.config.Logger.Warn("old backups are not removed", "schedule", s.Name, "error", err)
	}
	full, incremental, at := s.due(now)
	if !full && !incremental {
		return at, nil
	}
	if until := s.awaitsLog(); until.After(now) {
		return until, nil
	}
	one := &clusterpb.Backup{Id: b.config.Maker.NewID(now), Target: s.Target,
		Include: s.Include, Exclude: s.Exclude, Recipients: s.Recipients,
		BytesPerSecond: s.BytesPerSecond, KeepMillis: s.KeepMillis, BeganUnixMs: now.UnixMilli(),
		Schedule: s.Name}
	if incremental {
		one.Parent = s.Last
	}
	if len(one.Recipients) > 0 {
		var err error
		if one.Identity, err = b.config.Maker.NewIdentity(); err != nil {
			return at, err
		}
	}
	s.Running, s.Now = one.Id, false
	_, err := b.meta.Commit(ctx, []*storepb.Compare{s.unchanged(), store.Absent(key(one.Id))},
		append(forgotten(jobs), s.put(), store.Put(key(one.Id), meta.Encode(one)))...)
	b.poke()
	return time.Time{}, err
}

// expire removes expired backups and rounds, at intervals of expireEvery.
func (b *Backups) expire(ctx context.Context, s *schedule, now time.Time) error {
	if s.RetentionMillis == 0 || s.Last == "" {
		return nil
	}
	// A time that lies ahead was written by a member whose clock was wrong.
	since := now.Sub(time.UnixMilli(s.ExpiredUnixMs))
	if since >= 0 && since < expireEvery {
		return nil
	}
	s.ExpiredUnixMs = now.UnixMilli()
	ok, err := b.writeSchedule(ctx, *s)
	if err != nil || !ok {
		return err
	}
	if s.revision, err = b.revisionOf(ctx, *s); err != nil {
		return err
	}
	_, err = b.config.Maker.Expire(ctx, s.BackupSchedule,
		s.present(now).Add(-millis(s.RetentionMillis)))
	return err
}

// present returns the time from which the retention counts back: the newest moment that can be
// restored, but not later than now. Such moments are times of data nodes, which compare their
// clocks. Nobody compares the clock of a member of the core, so that it alone must not remove
// anything.
func (s schedule) present(now time.Time) time.Time {
	newest := hlc.Timestamp{}
	for _, at := range []*clusterpb.Timestamp{s.LastAt, s.LogAt} {
		if at := wire.FromClusterTimestamp(at); newest.Less(at) {
			newest = at
		}
	}
	if newest.Time().Before(now) {
		return newest.Time()
	}
	return now
}

// revisionOf returns the revision of a schedule that was just stored. It returns 0 if another call
// has changed the schedule.
func (b *Backups) revisionOf(ctx context.Context, s schedule) (uint64, error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return 0, err
	}
	stored, err := loadSchedule(v, s.Name)
	if err != nil || stored.BackupSchedule == nil || !proto.Equal(stored.BackupSchedule,
		s.BackupSchedule) {
		return 0, err
	}
	return stored.revision, nil
}

// completed returns the schedule as changed by the end of one of its backups, or nil if it does not
// change. failed is the error of the backup. It is nil if the backup is complete or was cancelled.
func (b *Backups) completed(ctx context.Context, r record, failed error) (*schedule, error) {
	if r.Schedule == "" {
		return nil, nil
	}
	v, err := b.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	s, err := loadSchedule(v, r.Schedule)
	if err != nil || s.BackupSchedule == nil || s.Running != r.Id {
		return nil, b.meta.Status(err)
	}
	s.Running = ""
	switch {
	case r.State == clusterpb.BackupState_BACKUP_COMPLETE:
		s.Last, s.LastAt = r.Id, r.At
		if r.Parent == "" {
			s.FullAt = r.At
		}
		s.Error, s.ErrorUnixMs, s.Failures, s.Broken = "", 0, 0, false
	case failed != nil:
		s.Error, s.ErrorUnixMs = r.Error, b.config.Now().UnixMilli()
		s.Failures++
		s.Broken = s.Broken || r.Parent != "" && b.config.Maker.Broken(failed)
	default: // the backup was cancelled: the next one begins at its time
		s.Error, s.ErrorUnixMs = "cancelled", b.config.Now().UnixMilli()
		s.Failures++
	}
	return &s, nil
}
