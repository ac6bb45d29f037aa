package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/recovery"
)

// What an operator does with the directories of servers that do not run, when partitions have lost
// their majority for good. See package recovery.
type (
	// Survey is what one node has.
	Survey = recovery.Survey
	// RecoveryPlan says which partitions go on from which replica.
	RecoveryPlan = recovery.Plan
	// RecoveryOutcome is what a plan did on one node.
	RecoveryOutcome = recovery.Outcome
)

// ErrNothingToRecover is returned if no partition has lost its majority.
var ErrNothingToRecover = recovery.ErrNothing

// MakeRecoveryPlan makes a plan of the surveys of all nodes but the lost ones.
func MakeRecoveryPlan(surveys []*Survey, lost []uint64, random func() uint64,
) (*RecoveryPlan, error) {
	return recovery.Make(surveys, lost, hexID(random()).String(),
		time.Now().UTC().Format(time.RFC3339))
}

// recoveryFile is beside the identity. The server does not start while a plan is begun and not
// done.
const (
	recoveryFile   = "recovery.json"
	recoveryFormat = 1
	// maxRecoveryRecords bounds what is remembered.
	maxRecoveryRecords = 64
)

type recoveryRecords struct {
	Format int `json:"format"`
	// Begun is the plan that is being carried out; nil: none is.
	Begun *recoveryRecord `json:"begun,omitempty"`
	// Done are those that were, the latest last.
	Done []recoveryRecord `json:"done,omitempty"`
}

type recoveryRecord struct {
	Plan string    `json:"plan"`
	Time time.Time `json:"time"`
	Lost []uint64  `json:"lost,omitempty"`
	// Recovered partitions go on here, Retired ones elsewhere; MayLack of the former may lack
	// acknowledged writes.
	Recovered int `json:"recovered"`
	Retired   int `json:"retired"`
	MayLack   int `json:"may_lack"`
	// Core: this was of the consistent core's member.
	Core bool `json:"core,omitempty"`
}

func (d *directory) readRecoveries() (*recoveryRecords, error) {
	r := &recoveryRecords{Format: recoveryFormat}
	f, err := d.fs.Open(d.sub(recoveryFile))
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
		return nil, fmt.Errorf("%w: %s in %s: %w", ErrDirectory, recoveryFile, d.path, err)
	}
	return r, nil
}

// writeRecoveries replaces the file: a crash leaves the old one or the new one.
func (d *directory) writeRecoveries(r *recoveryRecords) error {
	if n := len(r.Done) - maxRecoveryRecords; n > 0 {
		r.Done = r.Done[n:]
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := d.replaceFile(recoveryFile, append(b, '\n')); err != nil {
		return fmt.Errorf("%w: writing %s in %s: %w", ErrDirectory, recoveryFile, d.path, err)
	}
	return nil
}

// mustBeRecovered refuses a directory in which a recovery has begun and not come to its end, and
// tells of those that have.
func (d *directory) mustBeRecovered(logger *slog.Logger) error {
	r, err := d.readRecoveries()
	if err != nil {
		return err
	}
	if r.Begun != nil {
		command := "tidemark recover apply"
		if r.Begun.Core {
			command = "tidemark recover core apply"
		}
		return fmt.Errorf("%w: plan %s of `%s` was begun in %s, and is not done: give that command "+
			"with the same plan again, and then start the server", ErrDirectory, r.Begun.Plan, command,
			d.path)
	}
	for _, x := range r.Done {
		logger.Warn("THIS DIRECTORY WAS RECOVERED after the loss of a majority; acknowledged writes "+
			"may be missing", "plan", x.Plan, "time", x.Time, "lost_nodes", x.Lost,
			"partitions", x.Recovered, "may_lack_writes", x.MayLack, "core", x.Core)
	}
	return nil
}

// openStopped opens the directory of a server that does not run.
func openStopped(fs vfs.FS, path string) (*directory, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := fs.Stat(fs.PathJoin(path, identityFile)); err != nil {
		return nil, fmt.Errorf("%w: there is no %s in %s: give the --dir of a server", ErrDirectory,
			identityFile, path)
	}
	return openDirectory(fs, path, func() uint64 { return 0 })
}

// withNode calls a function with the data of the node of a server that does not run.
func withNode(d *directory, logger *slog.Logger, do func(recovery.Directory) error) (err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	id := d.identity()
	if id.Node == 0 || !d.hasDatabase(RoleNode, "log") {
		return fmt.Errorf("%w: %s has no data node, or its log is gone", ErrDirectory, d.path)
	}
	config := &ServerConfig{Dir: d.path, Logger: logger, FS: d.fs, Roles: []string{RoleNode}}
	leaving := make(chan struct{})
	close(leaving) // nothing waits for room
	dbs, err := openDatabases(config, d, RoleNode, databaseSizes{}, nil,
		prometheus.NewRegistry(), func(error) {}, leaving)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dbs.close()) }()
	return do(recovery.Directory{Cluster: uint64(id.Cluster), Server: uint64(id.Server),
		Node: keys.NodeID(id.Node), Log: dbs.log, State: dbs.state, Logger: logger})
}

// SurveyDirectory reads what the node of a server has that does not run. A nil fs is the machine's.
func SurveyDirectory(fs vfs.FS, path string, logger *slog.Logger) (s *Survey, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r, err := d.readRecoveries()
	if err != nil {
		return nil, err
	}
	if r.Begun != nil {
		return nil, fmt.Errorf("%w: plan %s is being carried out in %s: bring it to its end first",
			ErrDirectory, r.Begun.Plan, path)
	}
	err = withNode(d, logger, func(n recovery.Directory) error {
		s, err = recovery.Read(n)
		return err
	})
	return s, err
}

// ApplyRecovery carries out a plan in the directory of a server that does not run. It can be
// interrupted at any moment, and is then to be called again with the same plan: the server does not
// start before. Once it has come to its end, another call changes nothing.
func ApplyRecovery(fs vfs.FS, path string, plan *RecoveryPlan, logger *slog.Logger,
) (outcome *RecoveryOutcome, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	records, err := d.readRecoveries()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(records.Done, func(r recoveryRecord) bool {
		return r.Plan == plan.ID
	}); i >= 0 {
		return &RecoveryOutcome{Recovered: records.Done[i].Recovered, Retired: records.Done[i].Retired,
			Done: true}, nil
	}
	started := records.Begun != nil
	if started && records.Begun.Plan != plan.ID {
		return nil, fmt.Errorf("%w: plan %s was begun in %s, and is not done: go on with that one",
			ErrDirectory, records.Begun.Plan, path)
	}
	err = withNode(d, logger, func(n recovery.Directory) error {
		if err := recovery.Check(n, plan, started); err != nil {
			return err
		}
		if !started {
			records.Begun = &recoveryRecord{Plan: plan.ID, Time: time.Now().UTC(), Lost: plan.Lost}
			if err := d.writeRecoveries(records); err != nil {
				return err
			}
		}
		outcome, err = recovery.Apply(n, plan, started)
		return err
	})
	if err != nil {
		return nil, err
	}
	done := *records.Begun
	done.Recovered, done.Retired = outcome.Recovered, outcome.Retired
	for _, r := range plan.Recovered {
		if r.MayLack && r.Node == d.identity().Node {
			done.MayLack++
		}
	}
	records.Begun, records.Done = nil, append(records.Done, done)
	return outcome, d.writeRecoveries(records)
}
