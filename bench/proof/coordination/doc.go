// Package coordination has the workloads that prove the coordination service: the etcd v3 API on
// the consistent core, by etcd's own client, and the recipes of kv/coord on top of it. They are
// workloads as those of bench/proof/workloads, with the same rules (bench/proof/driver), and each
// client connects to the service by itself (Run.ConnectEtcd).
//
//   - txns.go: transactions, puts, deletes and reads over few keys, whose history is checked
//     against a model with revisions (bench/proof/revisions).
//   - watches.go: what watchers are told, compared with what was written.
//   - leases.go: leases end when they are not renewed, and not before.
//   - locks.go: holders of a lock, and writes behind a fence.
//   - elections.go: leaders, by their own belief and as observers see them.
//   - timers.go: periods that one of several managers fires, on machines with wrong clocks.
//
// What sessions believe is judged by true time. The servers' clocks may be faster than that by 3 %,
// which is more than sessions allow for, so beliefs may overlap for that long (drift).
package coordination
