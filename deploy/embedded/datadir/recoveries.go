package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// recoveryFile is in the same directory as the identity. The server does not start while a plan is
// begun and not done.
const (
	recoveryFile   = "recovery.json"
	recoveryFormat = 1
	// maxRecoveryRecords bounds the recoveries that are recorded.
	maxRecoveryRecords = 64
)

// RecoveryRecords has the recoveries that were carried out in a directory.
type RecoveryRecords struct {
	Format int `json:"format"`
	// Begun is the plan that is being carried out, or nil.
	Begun *RecoveryRecord `json:"begun,omitempty"`
	// Done lists the finished plans, the latest last.
	Done []RecoveryRecord `json:"done,omitempty"`
}

// RecoveryRecord describes one recovery.
type RecoveryRecord struct {
	Plan string    `json:"plan"`
	Time time.Time `json:"time"`
	Lost []uint64  `json:"lost,omitempty"`
	// Recovered counts the partitions that continue here. Retired counts the partitions that continue
	// elsewhere. MayLack counts the recovered partitions that may lack acknowledged writes.
	Recovered int `json:"recovered"`
	Retired   int `json:"retired"`
	MayLack   int `json:"may_lack"`
	// Core is set if this was a recovery of the core's member.
	Core bool `json:"core,omitempty"`
}

// Recoveries reads the recoveries of the directory.
func (d *Directory) Recoveries() (*RecoveryRecords, error) {
	r := &RecoveryRecords{Format: recoveryFormat}
	f, err := d.FS.Open(d.Sub(recoveryFile))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err == nil && r.Format != recoveryFormat {
		err = fmt.Errorf("it has format %d, this program knows %d", r.Format, recoveryFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s in %s: %w", ErrUnusable, recoveryFile, d.Path, err)
	}
	return r, nil
}

// SetRecoveries replaces the file. After a crash, the file has the old or the new content.
func (d *Directory) SetRecoveries(r *RecoveryRecords) error {
	if n := len(r.Done) - maxRecoveryRecords; n > 0 {
		r.Done = r.Done[n:]
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := d.ReplaceFile(recoveryFile, append(b, '\n')); err != nil {
		return fmt.Errorf("%w: writing %s in %s: %w", ErrUnusable, recoveryFile, d.Path, err)
	}
	return nil
}

// MustBeRecovered refuses a directory in which a recovery was begun and not completed. It logs the
// completed ones.
func (d *Directory) MustBeRecovered(logger *slog.Logger) error {
	r, err := d.Recoveries()
	if err != nil {
		return err
	}
	if r.Begun != nil {
		command := "tidemark recover apply"
		if r.Begun.Core {
			command = "tidemark recover core apply"
		}
		return fmt.Errorf("%w: plan %s of `%s` was begun in %s, and is not done: give that command "+
			"with the same plan again, and then start the server", ErrUnusable, r.Begun.Plan, command,
			d.Path)
	}
	for _, x := range r.Done {
		logger.Warn("THIS DIRECTORY WAS RECOVERED after the loss of a majority; acknowledged writes "+
			"may be missing", "plan", x.Plan, "time", x.Time, "lost_nodes", x.Lost,
			"partitions", x.Recovered, "may_lack_writes", x.MayLack, "core", x.Core)
	}
	return nil
}
