package offline

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/recovery"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// The following types are for the recovery of stopped servers' directories after partitions have
// permanently lost their majority. See package recovery.
type (
	// Survey describes the content of one node.
	Survey = recovery.Survey
	// RecoveryPlan says from which replica each partition continues.
	RecoveryPlan = recovery.Plan
	// RecoveryOutcome is the result of a plan on one node.
	RecoveryOutcome = recovery.Outcome
)

// ErrNothingToRecover is returned if no partition has lost its majority.
var ErrNothingToRecover = recovery.ErrNothing

// MakeRecoveryPlan makes a plan from the surveys of all nodes except the lost ones.
func MakeRecoveryPlan(surveys []*Survey, lost []uint64, random func() uint64,
) (*RecoveryPlan, error) {
	return recovery.Make(surveys, lost, datadir.HexID(random()).String(),
		time.Now().UTC().Format(time.RFC3339))
}

// openStopped opens the directory of a stopped server.
func openStopped(fs vfs.FS, path string) (*datadir.Directory, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := fs.Stat(fs.PathJoin(path, datadir.IdentityFile)); err != nil {
		return nil, fmt.Errorf("%w: there is no %s in %s: give the --dir of a server",
			datadir.ErrUnusable, datadir.IdentityFile, path)
	}
	d, err := datadir.Open(fs, path, func() uint64 { return 0 })
	if err != nil {
		return nil, err
	}
	if err := d.MustSupport(release.Supported()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openDatabases opens the stores of a part of a stopped server.
func openDatabases(d *datadir.Directory, part string, logger *slog.Logger) (
	*datadir.Databases, error) {
	leaving := make(chan struct{})
	close(leaving) // do not wait for disk space
	return d.OpenDatabases(part, datadir.DatabasesConfig{Logger: logger,
		MemberOfCore: part == datadir.Core, Registerer: prometheus.NewRegistry(),
		OnFailure: func(error) {}, Leaving: leaving})
}

// withNode calls a function with the data of a stopped server's node.
func withNode(d *datadir.Directory, logger *slog.Logger, do func(recovery.Directory) error,
) (err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	id := d.Identity()
	if id.Node == 0 || !d.HasDatabase(datadir.Node, "log") {
		return fmt.Errorf("%w: %s has no data node, or its log is gone", datadir.ErrUnusable, d.Path)
	}
	dbs, err := openDatabases(d, datadir.Node, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dbs.Close()) }()
	return do(recovery.Directory{Cluster: uint64(id.Cluster), Server: uint64(id.Server),
		Node: keys.NodeID(id.Node), Log: dbs.Log, State: dbs.State, Logger: logger})
}

// SurveyDirectory surveys the node of a stopped server. A nil fs means the machine's file system.
func SurveyDirectory(fs vfs.FS, path string, logger *slog.Logger) (s *Survey, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	r, err := d.Recoveries()
	if err != nil {
		return nil, err
	}
	if r.Begun != nil {
		return nil, fmt.Errorf("%w: plan %s is being carried out in %s: bring it to its end first",
			datadir.ErrUnusable, r.Begun.Plan, path)
	}
	err = withNode(d, logger, func(n recovery.Directory) error {
		s, err = recovery.Read(n)
		return err
	})
	return s, err
}

// ApplyRecovery carries out a plan in the directory of a stopped server. It can be interrupted at
// any moment, and must then be called again with the same plan. Until then the server does not
// start. Once it is completed, another call changes nothing.
func ApplyRecovery(fs vfs.FS, path string, plan *RecoveryPlan, logger *slog.Logger,
) (outcome *RecoveryOutcome, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	records, err := d.Recoveries()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(records.Done, func(r datadir.RecoveryRecord) bool {
		return r.Plan == plan.ID
	}); i >= 0 {
		return &RecoveryOutcome{Recovered: records.Done[i].Recovered, Retired: records.Done[i].Retired,
			Done: true}, nil
	}
	started := records.Begun != nil
	if started && records.Begun.Plan != plan.ID {
		return nil, fmt.Errorf("%w: plan %s was begun in %s, and is not done: go on with that one",
			datadir.ErrUnusable, records.Begun.Plan, path)
	}
	err = withNode(d, logger, func(n recovery.Directory) error {
		if err := recovery.Check(n, plan, started); err != nil {
			return err
		}
		if !started {
			records.Begun = &datadir.RecoveryRecord{Plan: plan.ID, Time: time.Now().UTC(), Lost: plan.Lost}
			if err := d.SetRecoveries(records); err != nil {
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
		if r.MayLack && r.Node == d.Identity().Node {
			done.MayLack++
		}
	}
	records.Begun, records.Done = nil, append(records.Done, done)
	return outcome, d.SetRecoveries(records)
}
