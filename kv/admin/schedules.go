package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BackupSchedule says which backups the core's leader makes automatically.
type BackupSchedule struct {
	// Name has 1 to 40 of a-z, 0-9 and hyphens.
	Name string
	// Target, Include, Exclude, Recipients and BytesPerSecond have the same meanings as in
	// BackupOptions.
	Target           string
	Include, Exclude []string
	Recipients       []string
	BytesPerSecond   uint64
	// Full is the interval between full backups, and Incremental the interval between incremental
	// ones. Log is the interval at which all changes are written to a log. For Incremental and Log, 0
	// means never.
	Full, Incremental, Log time.Duration
	// Retention is the time for which every moment can be restored. Backups and rounds of logs that
	// are not needed for that are removed. 0 means for ever.
	Retention time.Duration
	// Keep limits how long garbage collection keeps the history that the next backup or the log has to
	// read. 0 means three times Incremental, at least a day and at most a week.
	Keep time.Duration
	// Paused: no backup begins, and the log is not written.
	Paused bool
}

// BackupScheduleInfo is a schedule and its state.
type BackupScheduleInfo struct {
	BackupSchedule
	Created time.Time
	// Last is the newest complete backup, and LastAt its moment. FullAt is the moment of the newest
	// full backup.
	Last           string
	LastAt, FullAt kv.Timestamp
	// Running is the backup that is being made, or empty.
	Running string
	// Error is the last failure, if no backup has been completed since then. Failures is the number of
	// failures.
	Error    string
	ErrorAt  time.Time
	Failures int
	// Broken: the next backup has to be a full one.
	Broken bool
	// LogID is the id of the log. LogAt is the moment up to which the log has all changes. LogError is
	// the error that interrupts the log, or empty.
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

// CreateBackupSchedule asks the core's leader to make backups by a schedule from now on. It fails
// if there is a schedule of the same name.
func (c *Client) CreateBackupSchedule(ctx context.Context,
	s BackupSchedule) (BackupScheduleInfo, error) {
	return c.setSchedule(ctx, "create backup schedule ", s.Name, &clusterpb.SetBackupScheduleRequest{
		Schedule: s.message(), OnlyNew: true})
}

// SetBackupSchedule changes a schedule, or creates it. Backups and logs that it has made in the
// same target are continued.
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

// RunBackupSchedule makes the next backup of a schedule begin now.
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

// DeleteBackupSchedule ends a schedule. Its backups stay in the target.
func (c *Client) DeleteBackupSchedule(ctx context.Context, name string) error {
	_, err := ask(ctx, c, "delete backup schedule "+name, "",
		clusterpb.ClusterClient.DeleteBackupSchedule,
		&clusterpb.DeleteBackupScheduleRequest{Name: name})
	return err
}
