// Package rolling upgrades a cluster of real servers under load, one server after the other, from
// the release before to the program of this commit, back, and forward again; then the upgrade is
// finalised.
//
// The release before is the newest one in releases.txt that is not this commit. Its program is
// built from the repository's own history, so that the test needs a clone with that commit: it is
// skipped where there is none, as in an archive of the sources or in a shallow clone.
//
// A server is stopped and started as docs/upgrades.md says, and the next one waits until `tidemark
// status` finds nothing wrong. Meanwhile workloads write, read and transfer, watch, lock and renew
// leases. An upgrade is no fault: an operation that fails, and an answer that is wrong, are
// violations, as on a calm day.
//
// `make rolling` runs the test; FROM=COMMIT takes another program to begin with. Without -rolling
// the test is skipped: an operation that other tests delay would look like one that failed.
package rolling
