// Package etcdmetrics provides the metrics of etcd for a member of the core:
// etcd_server_has_leader, grpc_server_handled_total and so on. They have the names and labels that
// etcd's dashboards and alerts, kube-prometheus and `etcdctl check` use.
//
//	own metrics (tidemark_...) ──► renamed, label by label ──┐
//	State of this server's part of the store ────────────────┼──► Gather: the page
//	Calls, Watcher: what has no own metric ──────────────────┘
//
// Values have the same meanings as in etcd where Tidemark has an equivalent. Measurements of the
// log, of applying and of messages to other members cover both groups of the core, which share
// them. A server without a part of the coordination store shows only its calls and its process.
//
// A Watcher has one goroutine for the leader and one that times calls to the other members; both
// end with the context that they are given.
//
// The package imports no other package of a server: its dependencies are passed to it.
package etcdmetrics
