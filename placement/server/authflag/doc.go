// Package authflag has the record that says whether servers have to follow users and roles, and
// what servers have said of that to the leader of the core.
//
// # Why there is a record
//
// Users and roles lie in the coordination store, and guard the data on nodes that may be cut off
// from it. A node that has to follow them answers clients only as long as it hears of them (package
// guard); in a cluster without users no node may depend on that. So whether nodes have to follow is
// a record of its own, in the core's own store, which each server keeps a copy of on its disk:
//
//   - Its version counts its changes. A server takes a newer version, and never an older one.
//   - A node that registers says whether it knows of the record. It is told of it with its id, and
//     is recorded only if the record is still that. While it is on, a node that does not know of
//     it is refused, as it is with heartbeats; one that was recorded before is in the way of
//     enabling.
//   - Authentication is enabled after the record was put on, and every node that is not
//     decommissioned has said, to this leader or the one that records it, that its copy is.
//   - It is put off after authentication is disabled, in two steps: it becomes a new version that
//     is ending, and goes off if authentication is seen to be disabled after that, and the record
//     has not been put on again since. Authentication is not enabled under a version that is
//     ending.
//   - A mark that the record cannot have come to is one of a core whose end the present one does
//     not know (recovered.go). The record gets a later version then, and is on if either
//     is.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, every node that may hold
// data has a copy that is on. So each of them follows, also after a crash.
package authflag
