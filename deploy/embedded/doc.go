// Package embedded runs Tidemark servers inside this process: one server (Server), or a whole
// cluster (Cluster). It is the only package that connects all parts of a server. The command line
// uses it for start and demo, kv/kvtest uses it for tests, and applications use it to run a
// database in their own process.
//
// A server has one listener for all gRPC traffic (clients, nodes, the core), and optionally one for
// HTTP. Its roles determine what it does: it is a member of the consistent core, a data node, or
// both. The two roles share only the listener: each has its own directory, its own pair of
// databases, and its own hosts of Raft groups, in its own realm.
//
//	DIR/server.json   the server's identity: made with the directory, never changed but by joining
//	DIR/core/         log and state of the core member
//	DIR/node/         log and state of the data node
//
// A Server connects its parts, which share an environment:
//
//   - coreMember finds or forms the core, and runs the server's member of the core until the member
//     is removed.
//   - dataNode joins the cluster, and runs the node.
//   - etcdAPI answers the etcd API from the member's part of the coordination store, or forwards
//     calls to a member (package forward).
//
// Each part owns its state. The state is set before the server answers, or is atomic, so no part
// has a lock. The running objects of a part are behind one pointer, which is nil while the part
// does not run.
//
// Everything from outside the process (filesystem, clock, listener, dialer, logger, metrics, random
// numbers) comes in through ServerConfig. So a whole cluster can run in a test with simulated time
// and disks.
package embedded
