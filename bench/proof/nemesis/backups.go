package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/coordination"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/restores"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

// loads returns the workloads of a run: the workloads that the command line names, or the standard
// ones. Backups go to a directory beside the servers' directories. No fault affects that directory.
func loads(names []string, dir string) ([]driver.Workload, error) {
	backups, err := backing(filepath.Join(dir, "backups"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return slices.Concat(workloads.Standard(), coordination.Standard(), backups), nil
	}
	others := withoutBackups(names)
	chosen, err := workloads.Choose(others...)
	if len(others) < len(names) {
		chosen = append(chosen, backups...)
	}
	return chosen, err
}

// withoutBackups returns the names of the workloads that make no backups.
func withoutBackups(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names),
		func(name string) bool { return name == restores.Name })
}

// backing makes backups into a directory and restores them.
func backing(dir string) ([]driver.Workload, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return []driver.Workload{&restores.Restores{Target: "file://" + filepath.ToSlash(dir),
		Pause: 5 * time.Second, TracePause: 200 * time.Millisecond}}, nil
}
