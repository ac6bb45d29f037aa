package backups

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Maker makes backups. Its methods may be called from several goroutines.
type Maker interface {
	// Check returns an error if the target, the recipients or the patterns of a backup are not valid.
	Check(*clusterpb.Backup) error
	// Latest returns the id of the newest complete backup of this cluster in the target.
	Latest(context.Context, *clusterpb.Backup) (id string, err error)
	// Resolve sets the backup, the log and the moment of a restore whose request asks for the newest
	// backup or for a moment.
	Resolve(context.Context, *clusterpb.Backup) error
	// NewID returns a new id of a backup or a log.
	NewID(time.Time) string
	// NewIdentity returns a new identity for an encrypted backup.
	NewIdentity() (string, error)
	// Make makes a backup or continues it, and reports progress. An error for which Passing is true
	// may be temporary.
	Make(ctx context.Context, b *clusterpb.Backup,
		progress func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress)) error
	Passing(error) bool
	// Restore makes a restore or continues it. save stores what is loaded so far.
	Restore(ctx context.Context, b *clusterpb.Backup,
		progress func(at *clusterpb.Timestamp, p *clusterpb.BackupProgress),
		save func(context.Context, []byte) error) error
	// OpenLog opens the log of a schedule. It creates the log if it does not exist.
	OpenLog(context.Context, *clusterpb.BackupSchedule) (Log, error)
	// Broken reports whether an error means that an incremental backup or a log cannot be continued.
	// Then a full backup or a new log must begin.
	Broken(error) bool
	// Expire removes the backups and rounds of a schedule that no restore to `keep` or a later moment
	// needs. It returns the number of removed objects.
	Expire(ctx context.Context, s *clusterpb.BackupSchedule, keep time.Time) (int, error)
	// Release ends the protection of history for a schedule. It may be repeated.
	Release(context.Context, *clusterpb.BackupSchedule) error
	// Undo removes the objects of an incomplete backup, or the keyspaces of an incomplete restore. It
	// may be repeated.
	Undo(context.Context, *clusterpb.Backup) error
}

// Config has the dependencies of Backups. All fields must be set.
type Config struct {
	Meta   *meta.Records
	Store  *store.Store
	Maker  Maker
	Now    func() time.Time
	Logger *slog.Logger
}

// retryPause is the first pause of the leader after a failure. It doubles up to maxRetryPause.
// lookAgain is the interval at which the leader looks on its own. patience is the time after which
// a backup without progress fails, and after which a cancelled backup ends although its objects
// cannot be removed.
const (
	retryPause, maxRetryPause = time.Second, time.Minute
	lookAgain                 = 30 * time.Second
	patience                  = time.Hour
)

// Backups manages the backups that the core makes.
type Backups struct {
	config  Config
	meta    *meta.Records
	metrics *metrics
	logs    *logs
	// poked wakes Run. Capacity 1.
	poked chan struct{}

	mu sync.Mutex
	// running is the backup that this member is making, or nil.
	running *running
	// reached has the progress of each unfinished backup that this member has worked on. Between two
	// attempts at one backup, other backups may run.
	reached map[string]*reached
	// vain has the cancelled backups whose objects this member has tried to remove in vain.
	vain map[string]vain
}

// vain has the times at which the first and the last vain try began.
type vain struct{ first, last time.Time }

// reached is the furthest progress of a backup in all attempts. An attempt makes progress only if
// it gets further than the attempts before.
type reached struct {
	units uint32
	steps map[string]bool
	// at is the time of the last progress.
	at time.Time
}

// advance records progress, and reports whether it is further than before.
func (r *reached) advance(p *clusterpb.BackupProgress, now time.Time) bool {
	if p.UnitsDone <= r.units && r.steps[p.Step] {
		return false
	}
	r.units, r.at = max(r.units, p.UnitsDone), now
	r.steps[p.Step] = true
	return true
}

// running is a backup that is being made.
type running struct {
	id       string
	cancel   context.CancelFunc
	at       *clusterpb.Timestamp
	progress *clusterpb.BackupProgress
}

// New makes the Backups of a member.
func New(config Config) *Backups {
	b := &Backups{config: config, meta: config.Meta, metrics: newMetrics(),
		poked: make(chan struct{}, 1), reached: make(map[string]*reached),
		vain: make(map[string]vain)}
	b.logs = newLogs(b)
	return b
}

// Collectors returns the metrics.
func (b *Backups) Collectors() []prometheus.Collector { return b.metrics.collectors() }

func (b *Backups) poke() {
	select {
	case b.poked <- struct{}{}:
	default:
	}
}

// progress returns the progress of a backup. It is nil if this member is not making the backup.
func (b *Backups) progress(id string) *clusterpb.BackupProgress {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == nil || b.running.id != id {
		return nil
	}
	return b.running.progress
}

// stop cancels the work on a backup, if this member is making it.
func (b *Backups) stop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running != nil && b.running.id == id {
		b.running.cancel()
	}
}
