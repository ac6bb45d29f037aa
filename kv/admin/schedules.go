package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BackupSchedule says which backups the core's leader makes by itself.
type BackupSchedule struct {
	// Name has 1 to 40 of a-z, 0-9 and hyphens.
	Name string
	// Target, Include, Exclude, Recipients and BytesPerSecond are as those of BackupOptions.
	Target           string
	Include, Exclude []string
	Recipients       []string
	BytesPerSecond   uint64
	// Full is how often a full backup is made, Incremental how often an incremental one (0: never),
	// Log how often all changes are written to a log (0: never).
	Full, Incremental, Log time.Duration
	// Retention is for how long every moment can be restored; what no such moment needs is removed.
	// 0: for ever.
	Retention time.Duration
	// Keep bounds for how long garbage collection leaves what the next backup or the log has to read;
	// 0: three times Incremental, at least a day and at most a week.
	Keep time.Duration
	// Paused: no backup begins, and the log stands still.
	Paused bool
}

// BackupScheduleInfo is a schedule and what it has made.
type BackupScheduleInfo struct {
	BackupSchedule
	Created time.Time
	// Last is the newest complete backup, LastAt its moment, FullAt that of the newest full one.
	Last           string
	LastAt, FullAt kv.Timestamp
	// Running is the backup that is being made; empty: none.
	Running string
	// Error is the last failure, if no backup has been completed since then; Failures counts them.
	Error    string
	ErrorAt  time.Time
	Failures int
	// Broken: the next backup has to be a full one.
	Broken bool
	// LogID is the log, LogAt the moment up to which it has all changes, LogError why it does not go
	// on.
	LogID    string
	LogAt    kv.Timestamp
	LogError string
}

func scheduleInfo(s *clusterpb.BackupSchedule) BackupScheduleInfo {
	millis := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond }
	info := BackupScheduleInfo{BackupSchedule: BackupSchedule{Name: s.GetName(),
		Target: s.GetTarget(), Include: s.GetInclude(), Exclude: s.GetExclude(),
		Recipients: s.GetRecipients(), BytesPerSecond: s.GetBytesPerSecond(),
		Full: millis(s.GetFullMillis()), Incremental: millis(s.GetIncrementalMillis()),
		Log: millis(s.GetLogMillis()), Retention: millis(s.GetRetentionMillis()),
		Keep: millis(s.GetKeepMillis()), Paused: s.GetPaused()},
		Created: time.UnixMilli(s.GetCreatedUnixMs()), Last: s.GetLast(),
		LastAt: wire.FromClusterTimestamp(s.GetLastAt()),
		FullAt: wire.FromClusterTimestamp(s.GetFullAt()), Running: s.GetRunning(),
		Error: s.GetError(), Failures: int(s.GetFailures()), Broken: s.GetBroken(),
		LogID: s.GetLog(), LogAt: wire.FromClusterTimestamp(s.GetLogAt()), LogError: s.GetLogError()}
	if at := s.GetErrorUnixMs(); at != 0 {
		info.ErrorAt = time.UnixMilli(at)
	}
	return info
}

// CreateBackupSchedule has the core's leader make backups by a schedule from now on. A schedule of
// the same name is an error.
func (c *Client) CreateBackupSchedule(ctx context.Context,
	s BackupSchedule) (BackupScheduleInfo, error) {
	return c.setSchedule(ctx, "create backup schedule ", s.Name, &clusterpb.SetBackupScheduleRequest{
		Schedule: s.message(), OnlyNew: true})
}

// SetBackupSchedule changes a schedule, or creates it. What it has made in the same target is
// continued.
func (c *Client) SetBackupSchedule(ctx context.Context,
	s BackupSchedule) (BackupScheduleInfo, error) {
	return c.setSchedule(ctx, "set backup schedule ", s.Name, &clusterpb.SetBackupScheduleRequest{
		Schedule: s.message()})
}

// PauseBackupSchedule pauses a schedule, or resumes it.
func (c *Client) PauseBackupSchedule(ctx context.Context, name string,
	paused bool) (BackupScheduleInfo, error) {
	return c.setSchedule(ctx, "pause or resume backup schedule ", name,
		&clusterpb.SetBackupScheduleRequest{Schedule: &clusterpb.BackupSchedule{Name: name},
			Paused: &paused})
}

// RunBackupSchedule has the next backup of a schedule begin now.
func (c *Client) RunBackupSchedule(ctx context.Context, name string) (BackupScheduleInfo, error) {
	return c.setSchedule(ctx, "run backup schedule ", name, &clusterpb.SetBackupScheduleRequest{
		Schedule: &clusterpb.BackupSchedule{Name: name}, Now: true})
}

func (c *Client) setSchedule(ctx context.Context, what, name string,
	q *clusterpb.SetBackupScheduleRequest) (BackupScheduleInfo, error) {
	r, err := ask(ctx, c, what+name, "", clusterpb.ClusterClient.SetBackupSchedule, q)
	return scheduleInfo(r.GetSchedule()), err
}

func (s *BackupSchedule) message() *clusterpb.BackupSchedule {
	millis := func(d time.Duration) uint64 { return uint64(max(0, d).Milliseconds()) }
	return &clusterpb.BackupSchedule{Name: s.Name, Target: s.Target, Include: s.Include,
		Exclude: s.Exclude, Recipients: s.Recipients, BytesPerSecond: s.BytesPerSecond,
		FullMillis: millis(s.Full), IncrementalMillis: millis(s.Incremental), LogMillis: millis(s.Log),
		RetentionMillis: millis(s.Retention), KeepMillis: millis(s.Keep), Paused: s.Paused}
}

// BackupSchedules lists the schedules by name.
func (c *Client) BackupSchedules(ctx context.Context) ([]BackupScheduleInfo, error) {
	r, err := ask(ctx, c, "list backup schedules", "", clusterpb.ClusterClient.ListBackupSchedules,
		&clusterpb.ListBackupSchedulesRequest{})
	var all []BackupScheduleInfo
	for _, s := range r.GetSchedules() {
		all = append(all, scheduleInfo(s))
	}
	return all, err
}

// DeleteBackupSchedule ends a schedule. What it has made stays in its target.
func (c *Client) DeleteBackupSchedule(ctx context.Context, name string) error {
	_, err := ask(ctx, c, "delete backup schedule "+name, "",
		clusterpb.ClusterClient.DeleteBackupSchedule,
		&clusterpb.DeleteBackupScheduleRequest{Name: name})
	return err
}
