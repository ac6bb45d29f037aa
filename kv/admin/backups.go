package admin

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// LatestBackup is a value for BackupOptions.Parent and RestoreOptions.Backup. It stands for the
// newest complete backup of the cluster in the target.
const LatestBackup = "latest"

// BackupOptions describe a backup, or a restore.
type BackupOptions struct {
	// ID is the id of the backup. If it is empty, a new id is made. Give the same id to repeat a
	// request for the same backup.
	ID string
	// Target is the URL of the place where the backup is kept, without credentials: every server has
	// its own credentials.
	Target string
	// Parent is the backup that an incremental backup continues: an id, or LatestBackup. It is empty
	// for a full backup.
	Parent string
	// Include and Exclude are names of keyspaces, or patterns with `*`. Without Include, all keyspaces
	// are included.
	Include, Exclude []string
	// Recipients are the age recipients ("age1...") who can read the backup. Without recipients the
	// backup is not encrypted.
	Recipients []string
	// BytesPerSecond limits how much each node reads for the backup. 0 means no limit.
	BytesPerSecond uint64
	// Keep limits how long the history that the backup reads is protected from garbage collection. 0
	// means 24 hours.
	Keep time.Duration
	// Restore, if set, asks for a restore instead of a backup. Include and Exclude then select the
	// keyspaces to restore. Parent, Recipients and Keep are not used.
	Restore *RestoreOptions
}

// RestoreOptions describe a restore.
type RestoreOptions struct {
	// Backup is the id of the backup, or LatestBackup. If it is empty, a moment is restored.
	Backup string
	// At is the moment to restore without a Backup. Newest asks for the latest moment that can be
	// restored. Log is set in answers: the log that is used.
	At     kv.Timestamp
	Newest bool
	Log    string
	// Names gives keyspaces other names than they have in the backup.
	Names map[string]string
	// Identities is the text of a file of age identities, for an encrypted backup.
	Identities string
	// Coordination asks for a restore of the coordination store, with its users and roles. The store
	// must be empty.
	Coordination bool
	// Settings asks for a restore of the settings of placement.
	Settings bool
	// NoKeyspaces excludes all keyspaces.
	NoKeyspaces bool
}

// BackupState is the state of a backup.
type BackupState string

// The states of a backup.
const (
	BackupRunning    BackupState = "running"
	BackupComplete   BackupState = "complete"
	BackupFailed     BackupState = "failed"
	BackupCancelling BackupState = "cancelling"
	BackupCancelled  BackupState = "cancelled"
)

// BackupInfo describes a backup that the core is making or has made.
type BackupInfo struct {
	BackupOptions
	State        BackupState
	Began, Ended time.Time
	// Schedule is the name of the schedule that the backup belongs to. It is empty if a user asked for
	// the backup.
	Schedule string
	// Error says why the backup failed, or why objects of a cancelled backup are left.
	Error string
	// At is the moment that the backup restores. It is zero until the moment is chosen.
	At kv.Timestamp
	// Step is the current step, as a phrase. UnitsDone of Units units are written. Both are 0 until
	// the units are known.
	Step             string
	UnitsDone, Units int
	// Records and Bytes count keys and values. StoredBytes is the size of the objects in the target.
	Records, Bytes, StoredBytes uint64
	// Failures counts the attempts of nodes that failed and were repeated. LastFailure is the last
	// error.
	Failures    int
	LastFailure string
}

// Over reports whether the work on the backup has ended.
func (b *BackupInfo) Over() bool { return b.State != BackupRunning && b.State != BackupCancelling }

var backupStates = map[clusterpb.BackupState]BackupState{
	clusterpb.BackupState_BACKUP_RUNNING:    BackupRunning,
	clusterpb.BackupState_BACKUP_COMPLETE:   BackupComplete,
	clusterpb.BackupState_BACKUP_FAILED:     BackupFailed,
	clusterpb.BackupState_BACKUP_CANCELLING: BackupCancelling,
	clusterpb.BackupState_BACKUP_CANCELLED:  BackupCancelled,
}

func backupInfo(b *clusterpb.Backup) BackupInfo {
	state, known := backupStates[b.GetState()]
	if !known {
		state = BackupState(fmt.Sprintf("state %d", b.GetState()))
	}
	p := b.GetProgress()
	info := BackupInfo{BackupOptions: BackupOptions{ID: b.GetId(), Target: b.GetTarget(),
		Parent: b.GetParent(), Include: b.GetInclude(), Exclude: b.GetExclude(),
		Recipients: b.GetRecipients(), BytesPerSecond: b.GetBytesPerSecond(),
		Keep: time.Duration(b.GetKeepMillis()) * time.Millisecond}, State: state,
		Schedule: b.GetSchedule(),
		Error:    b.GetError(), Began: time.UnixMilli(b.GetBeganUnixMs()), Step: p.GetStep(),
		UnitsDone: int(p.GetUnitsDone()), Units: int(p.GetUnits()), Records: p.GetRecords(),
		Bytes: p.GetBytes(), StoredBytes: p.GetStoredBytes(), Failures: int(p.GetFailures()),
		LastFailure: p.GetLastFailure(), At: wire.FromClusterTimestamp(b.GetAt())}
	if r := b.GetRestore(); r != nil {
		info.Restore = &RestoreOptions{Backup: r.GetBackup(), Log: r.GetLog(),
			At: wire.FromClusterTimestamp(r.GetAt()), Names: make(map[string]string),
			Coordination: r.GetCoordination(), Settings: r.GetSettings(), NoKeyspaces: r.GetNoKeyspaces()}
		for _, n := range r.GetNames() {
			info.Restore.Names[n.GetName()] = n.GetAs()
		}
	}
	if ended := b.GetEndedUnixMs(); ended != 0 {
		info.Ended = time.UnixMilli(ended)
	}
	return info
}

// CreateBackup asks the core's leader to make or restore a backup. It returns when the request is
// recorded. Backup returns the progress.
func (c *Client) CreateBackup(ctx context.Context, o BackupOptions) (BackupInfo, error) {
	if o.ID == "" {
		o.ID = manifest.NewID(time.Now(), rand.Uint32())
	}
	b := &clusterpb.Backup{Id: o.ID, Target: o.Target, Parent: o.Parent, Include: o.Include,
		Exclude: o.Exclude, Recipients: o.Recipients, BytesPerSecond: o.BytesPerSecond,
		KeepMillis: uint64(o.Keep.Milliseconds())}
	what := "create backup "
	if o.Restore != nil {
		what = "restore "
		b.Restore = &clusterpb.Restore{Backup: o.Restore.Backup, Identities: o.Restore.Identities,
			Coordination: o.Restore.Coordination, Settings: o.Restore.Settings,
			NoKeyspaces: o.Restore.NoKeyspaces, Newest: o.Restore.Newest}
		if !o.Restore.At.IsZero() {
			b.Restore.At = wire.ToClusterTimestamp(o.Restore.At)
		}
		for _, name := range slices.Sorted(maps.Keys(o.Restore.Names)) {
			b.Restore.Names = append(b.Restore.Names,
				&clusterpb.Renaming{Name: name, As: o.Restore.Names[name]})
		}
	}
	r, err := ask(ctx, c, what+o.ID, "", clusterpb.ClusterClient.CreateBackup,
		&clusterpb.CreateBackupRequest{Backup: b})
	return backupInfo(r.GetBackup()), err
}

// Backups lists the backups that the core is making, and the last ones that have ended, the newest
// first. "tidemark backup list" lists the backups in a target.
func (c *Client) Backups(ctx context.Context) ([]BackupInfo, error) {
	r, err := ask(ctx, c, "list backups", "", clusterpb.ClusterClient.ListBackups,
		&clusterpb.ListBackupsRequest{})
	var all []BackupInfo
	for _, b := range r.GetBackups() {
		all = append(all, backupInfo(b))
	}
	return all, err
}

// Backup returns the state of a backup.
func (c *Client) Backup(ctx context.Context, id string) (BackupInfo, error) {
	r, err := ask(ctx, c, "look up backup "+id, "", clusterpb.ClusterClient.ListBackups,
		&clusterpb.ListBackupsRequest{Id: id})
	if err != nil || len(r.GetBackups()) == 0 {
		return BackupInfo{}, err
	}
	return backupInfo(r.Backups[0]), nil
}

// CancelBackup ends an incomplete backup, and has its objects removed. It returns when that is
// recorded.
func (c *Client) CancelBackup(ctx context.Context, id string) (BackupInfo, error) {
	r, err := ask(ctx, c, "cancel backup "+id, "", clusterpb.ClusterClient.CancelBackup,
		&clusterpb.CancelBackupRequest{Id: id})
	return backupInfo(r.GetBackup()), err
}
