//go:build planted && planted_snapshot_without_applied

package planted

const active = SnapshotWithoutApplied
