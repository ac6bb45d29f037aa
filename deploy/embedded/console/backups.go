package console

import (
	"context"
	"net/url"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// backupsView is the feed "backups".
type backupsView struct {
	Backups   []backupView   `json:"backups"`
	Schedules []scheduleView `json:"schedules"`
}

type backupView struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Restore  bool   `json:"restore,omitempty"`
	Target   string `json:"target"`
	Parent   string `json:"parent,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Began    int64  `json:"began"` // Unix milliseconds
	Ended    int64  `json:"ended,omitempty"`
	Step     string `json:"step,omitempty"`
	Done     int    `json:"done"`
	Units    int    `json:"units"`
	Records  uint64 `json:"records"`
	Bytes    uint64 `json:"bytes"`
	Stored   uint64 `json:"stored"`
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`
	// Encrypted: the backup can be read only with an identity.
	Encrypted bool `json:"encrypted,omitempty"`
}

type scheduleView struct {
	Name    string `json:"name"`
	Target  string `json:"target"`
	Paused  bool   `json:"paused,omitempty"`
	Full    string `json:"full"`
	Between string `json:"incremental,omitempty"`
	Log     string `json:"log,omitempty"`
	Keeps   string `json:"retention,omitempty"`
	// Last is the newest complete backup, and LastAt its moment. LogAt is the moment up to which the
	// log has all changes. Both are Unix milliseconds.
	Last     string `json:"last,omitempty"`
	LastAt   int64  `json:"lastAt,omitempty"`
	LogAt    int64  `json:"logAt,omitempty"`
	Running  string `json:"running,omitempty"`
	Error    string `json:"error,omitempty"`
	LogError string `json:"logError,omitempty"`
}

// listBackups reads backups and schedules. It is for administrators.
func listBackups(ctx context.Context, _ *viewer, cluster Cluster, _ url.Values) (any, error) {
	backups, err := cluster.Backups(ctx)
	if err != nil {
		return nil, err
	}
	schedules, err := cluster.BackupSchedules(ctx)
	if err != nil {
		return nil, err
	}
	view := backupsView{Backups: []backupView{}, Schedules: []scheduleView{}}
	for i := range backups[:min(len(backups), listed)] {
		view.Backups = append(view.Backups, backupOf(&backups[i]))
	}
	for i := range schedules[:min(len(schedules), listed)] {
		view.Schedules = append(view.Schedules, scheduleOf(&schedules[i]))
	}
	return view, nil
}

func backupOf(b *admin.BackupInfo) backupView {
	why := b.Error
	if why == "" && b.Failures > 0 && !b.Over() {
		why = b.LastFailure
	}
	return backupView{ID: b.ID, State: string(b.State), Restore: b.Restore != nil,
		Target: withoutSecrets(b.Target), Parent: b.Parent, Schedule: b.Schedule,
		Began: unixMillis(b.Began), Ended: unixMillis(b.Ended), Step: b.Step, Done: b.UnitsDone,
		Units: b.Units, Records: b.Records, Bytes: b.Bytes, Stored: b.StoredBytes,
		Failures: b.Failures, Error: why, Encrypted: len(b.Recipients) > 0}
}

func scheduleOf(s *admin.BackupScheduleInfo) scheduleView {
	return scheduleView{Name: s.Name, Target: withoutSecrets(s.Target), Paused: s.Paused,
		Full: period(s.Full), Between: period(s.Incremental), Log: period(s.Log),
		Keeps: period(s.Retention), Last: s.Last, LastAt: moment(s.LastAt), LogAt: moment(s.LogAt),
		Running: s.Running, Error: s.Error, LogError: s.LogError}
}

// withoutSecrets returns a target's URL without credentials.
func withoutSecrets(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	u.User = nil
	return u.String()
}

func period(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func moment(t kv.Timestamp) int64 {
	if t.Wall <= 0 {
		return 0
	}
	return time.Unix(0, t.Wall).UnixMilli()
}
