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

// LatestBackup as BackupOptions.Parent stands for the newest complete backup of the cluster in the
// target.
const LatestBackup = "latest"

// BackupOptions say which backup is wanted.
type BackupOptions struct {
	// ID names it; empty: a new id. Give the same id to ask again for the same backup.
	ID string
	// Target is the URL of where it is kept, without credentials: every server has its own.
	Target string
	// Parent is the backup that it continues, by id, or LatestBackup; empty: it is a full one.
	Parent string
	// Include and Exclude are names of keyspaces, or patterns with `*`. Without Include all are in it.
	Include, Exclude []string
	// Recipients are the age recipients ("age1...") who can read it; none: it is not encrypted.
	Recipients []string
	// BytesPerSecond bounds what each node reads for it; 0: no bound.
	BytesPerSecond uint64
	// Keep bounds for how long the history that it reads is protected from garbage collection; 0: 24
	// hours.
	Keep time.Duration
	// Restore, if set, says that not a backup is made but one restored; Include and Exclude say of
	// which keyspaces. Parent, Recipients and Keep are not used then.
	Restore *RestoreOptions
}

// RestoreOptions say what is restored.
type RestoreOptions struct {
	// Backup is the id of the backup, or LatestBackup; empty: a moment is restored.
	Backup string
	// At is the moment that is restored without a Backup, Newest says that it is the last one that
	// can be. Log is the log that is used, in answers.
	At     kv.Timestamp
	Newest bool
	Log    string
	// Names gives keyspaces other names than those in the backup.
	Names map[string]string
	// Identities is the text of a file of age identities, for an encrypted backup.
	Identities string
	// Coordination has the coordination store filled, too, with its users and roles. It must be empty.
	Coordination bool
	// Settings has what placement may do set as it was.
	Settings bool
	// NoKeyspaces leaves all keyspaces out.
	NoKeyspaces bool
}

// BackupState says what has become of a backup.
type BackupState string

// The states of a backup.
const (
	BackupRunning    BackupState = "running"
	BackupComplete   BackupState = "complete"
	BackupFailed     BackupState = "failed"
	BackupCancelling BackupState = "cancelling"
	BackupCancelled  BackupState = "cancelled"
)

// BackupInfo is a backup that the core makes, or has made.
type BackupInfo struct {
	BackupOptions
	State        BackupState
	Began, Ended time.Time
	// Schedule is the name of the schedule that it is made for; empty: it was asked for.
	Schedule string
	// Error says why it failed, or why something is left of one that was cancelled.
	Error string
	// At is the moment that it restores; zero until that is chosen.
	At kv.Timestamp
	// Step is what is being done, as a phrase. UnitsDone of Units are written; both are 0 until the
	// units are known.
	Step             string
	UnitsDone, Units int
	// Records and Bytes are of keys and values, StoredBytes of objects in the target.
	Records, Bytes, StoredBytes uint64
	// Failures counts attempts of nodes that failed and were repeated; LastFailure is the last one.
	Failures    int
	LastFailure string
}

// Over reports that nothing more will be done for the backup.
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

// CreateBackup has the core's leader make a backup, or restore one. It returns when that is
// recorded; Backup tells how far it is.
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

// Backups lists the backups that the core makes, and the last ones that have ended, the newest
// first. Those in a target are listed by "tidemark backup list".
func (c *Client) Backups(ctx context.Context) ([]BackupInfo, error) {
	r, err := ask(ctx, c, "list backups", "", clusterpb.ClusterClient.ListBackups,
		&clusterpb.ListBackupsRequest{})
	var all []BackupInfo
	for _, b := range r.GetBackups() {
		all = append(all, backupInfo(b))
	}
	return all, err
}

// Backup tells how a backup is.
func (c *Client) Backup(ctx context.Context, id string) (BackupInfo, error) {
	r, err := ask(ctx, c, "look up backup "+id, "", clusterpb.ClusterClient.ListBackups,
		&clusterpb.ListBackupsRequest{Id: id})
	if err != nil || len(r.GetBackups()) == 0 {
		return BackupInfo{}, err
	}
	return backupInfo(r.Backups[0]), nil
}

// CancelBackup ends a backup that is not complete, and has removed what was written of it. It
// returns when that is recorded.
func (c *Client) CancelBackup(ctx context.Context, id string) (BackupInfo, error) {
	r, err := ask(ctx, c, "cancel backup "+id, "", clusterpb.ClusterClient.CancelBackup,
		&clusterpb.CancelBackupRequest{Id: id})
	return backupInfo(r.GetBackup()), err
}
