// Package embedded runs Tidemark servers inside this process: one server (Server), or a whole
// cluster (Cluster). It is the one place that wires the parts together. The command line uses it
// for start and demo, kv/kvtest for tests, and applications that want their database inside
// themselves.
//
// A server has one listener for everything that speaks gRPC (clients, nodes, the core), and one for
// HTTP if asked. What it is depends on its roles: a member of the consistent core, a data node, or
// both. The two share nothing but the listener: each has its own directory, its own pair of
// databases, and its own hosts of Raft groups, in a realm of its own.
//
//	DIR/server.json   the server's identity: made with the directory, never changed but by joining
//	DIR/core/         log and state of the core member
//	DIR/node/         log and state of the data node
//
// A Server wires its parts, which share an environment:
//
//   - coreMember finds or forms the core, and runs the server's member of it until that is removed.
//   - dataNode joins the cluster, and runs the node.
//   - etcdAPI answers the etcd API from the member's part of the coordination store, or passes calls
//     on to a member (package forward).
//
// Each part owns its state. That is set before the server answers, or is atomic, so no part has a
// lock. What runs of a part is behind one pointer, nil while it does not run.
//
// Everything from outside the process (filesystem, clock, listener, dialer, logger, metrics, random
// numbers) comes in through ServerConfig, so that a whole cluster can run in a test with time and
// disks of its own.
package embedded
