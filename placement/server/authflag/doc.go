// Package authflag has the record that says whether servers must follow users and roles, and the
// servers' reports about the record to the leader of the core.
//
// # Why there is a record
//
// Users and roles are stored in the coordination store. They protect the data on nodes that may be
// disconnected from that store. A node that must follow users and roles answers clients only while
// it receives updates of them (package guard). In a cluster without users, nodes must not depend on
// that store. Therefore a separate record says whether nodes must follow. It is stored in the
// core's own store, and each server has a copy on its disk:
//
//   - The version of the record counts its changes. A server accepts a newer version, and never an
//     older one.
//   - A node that registers says whether its program knows the record. It gets the record together
//     with its id. It is registered only if the record is still the same. While the record is on, a
//     node that does not know the record is refused, at registration and at heartbeats.
//     Authentication cannot be enabled while such a node is registered.
//   - Authentication is enabled only after the record is on and every node has reported that its
//     copy is on. Decommissioned nodes do not count. The report goes to this leader, or to the
//     leader that registers the node.
//   - The record is turned off after authentication was disabled, in two steps. First it gets a new
//     version, which is ending. It goes off if authentication is disabled after that, and nobody
//     has turned the record on again. Authentication cannot be enabled under a version that is
//     ending.
//   - A server may report a copy that the record cannot have produced. That copy comes from an
//     earlier core, whose last changes the present core lost (recovered.go). Then the record gets a
//     later version, and is on if the record or the copy is on.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, every node that may hold
// data has a copy that is on. So each node follows users and roles, even after a crash.
package authflag
