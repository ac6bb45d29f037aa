// Package coordination has the workloads that test the coordination service: the etcd v3 API on the
// consistent core, used through etcd's own client, and the recipes of kv/coord on top of it. The
// workloads keep the same rules (bench/proof/driver) as the workloads of bench/proof/workloads.
// Each client connects to the service by itself (Run.ConnectEtcd).
//
//   - txns.go: transactions, puts, deletes and reads over few keys. Their history is checked
//     against a model with revisions (bench/proof/revisions).
//   - watches.go: the changes that watchers receive, compared with the writes.
//   - leases.go: leases end when they are not renewed, and not before.
//   - locks.go: holders of a lock, and writes behind a fence.
//   - elections.go: leaders, as they believe themselves and as observers see them.
//   - timers.go: periods that one of several managers fires, on machines with wrong clocks.
//
// The beliefs of sessions are judged by true time. The servers' clocks may be faster than true time
// by 3 %, which is more than sessions allow for. So the beliefs of two sessions may overlap for
// that long (drift).
package coordination
