// Package restores makes backups, restores them, and compares what is restored with what was there
// at the moment, while other workloads write and faults happen.
//
// Restores is a workload (package driver) like those of bench/proof/workloads, for a simulated
// cluster and for real processes. One client writes a trace into a keyspace and into the
// coordination store; another one carries out operations, one after the other:
//
//   - a full backup, or two or three backups of a chain; or a schedule with a log, and a moment
//     behind its first backup;
//   - a scan of the source at the moment, as soon as the moment is known, before garbage collection
//     may take the history;
//   - a restore of some keyspaces under other names;
//   - the comparison: every record with its value and expiry, and none besides; the invariant of
//     the workload to which the keyspace belongs; the coordination store, key by key, with a read
//     at the revision that the backup names; and the order between the two stores;
//   - the removal of everything that the operation has made, in the cluster and in the target.
//
// # What is a violation
//
// A copy that calls itself whole and differs. A job that fails, but because history was collected
// that nothing protected. In calm also a job that is not over in time. In a storm an operation
// whose time is over is given up. At the end of the run nothing may be left: no job, no hidden
// keyspace, no consumer of a backup, no object in the target.
//
// # What is where
//
// restores.go is the workload, operation.go one operation, jobs.go how a job is asked for and
// awaited, compare.go what is compared, coordination.go the same for the coordination store,
// clean.go what is removed.
//
// The package starts no goroutines. It must not import a test's cluster (kv/kvtest).
package restores
