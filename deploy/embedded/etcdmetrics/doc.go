// Package etcdmetrics shows a member of the core with the metrics of etcd: etcd_server_has_leader,
// grpc_server_handled_total and so on, by the names and labels that etcd's dashboards and alerts,
// kube-prometheus and `etcdctl check` ask for.
//
//	own metrics (tidemark_...) ──► renamed, label by label ──┐
//	State of this server's part of the store ────────────────┼──► Gather: the page
//	Calls, Watcher: what has no own metric ──────────────────┘
//
// Values mean what they mean in etcd as far as there is the same thing here. What is measured of
// the log, the applying and the messages to other members is that of both groups of the core, which
// share them. A server that has no part of the coordination store shows its calls and its process
// alone.
//
// A Watcher has one goroutine for the leader and one that times calls to the other members; both
// end with the context that they are given.
//
// The package knows no other package of a server: what it needs is handed to it.
package etcdmetrics
