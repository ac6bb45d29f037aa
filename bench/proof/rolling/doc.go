// Package rolling upgrades a cluster of real servers under load, one server after the other: from
// the previous release to the program of this commit, back, and forward again. Then the upgrade is
// finalised.
//
// The previous release is the newest one in releases.txt that is not this commit. Its program is
// built from the repository's history. So the test needs a clone with that commit. In an archive of
// the sources, or in a shallow clone, the test is skipped.
//
// Servers are stopped and started as docs/upgrades.md says. The next server waits until `tidemark
// status` finds no problem. Meanwhile workloads write, read and transfer, watch, lock and renew
// leases. An upgrade is no fault: a failed operation or a wrong answer is a violation, as in calm.
//
// `make rolling` runs the test. FROM=COMMIT begins with another program. Without -rolling the test
// is skipped, because an operation that other tests delay would look like a failed one.
package rolling
