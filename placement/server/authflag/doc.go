// Package authflag has the record that says whether servers must follow users and roles, and what
// servers have reported about it to the leader of the core.
//
// # Why there is a record
//
// Users and roles lie in the coordination store, and guard the data on nodes that may be cut off
// from it. A node that must follow them answers clients only as long as it hears of them (package
// guard); in a cluster without users no node may depend on that. So whether nodes must follow is a
// record of its own, in the core's own store, of which each server keeps a copy on its disk:
//
//   - Its version counts its changes. A server takes a newer version, and never an older one.
//   - A node that registers says whether it knows of the record. It gets the record with its id,
//     and is registered only if the record is still the same. While the record is on, a node that
//     does not know of it is refused, at registration and with its heartbeats. A node that was
//     registered before prevents that authentication is enabled.
//   - Authentication is enabled only after the record is on, and after every node that is not
//     decommissioned has reported, to this leader or to the one that registers it, that its copy
//     is.
//   - The record is put off after authentication is disabled, in two steps: it becomes a new
//     version that is ending, and goes off if authentication is seen to be disabled after that, and
//     the record has not been put on again since. Authentication is not enabled under a version
//     that is ending.
//   - A mark that the record cannot have come to stems from a core whose last changes the present
//     one does not know (recovered.go). Then the record gets a later version, and is on if either
//     is.
//
// INVARIANT: while authentication is enabled, and that was acknowledged, every node that may hold
// data has a copy that is on. So each of them follows, also after a crash.
package authflag
