// Package upgrade raises the level of the cluster, which says which new formats and messages
// servers may use (package rpc/release). It refuses servers whose programs do not support that
// level.
//
// # The record
//
// The level is a record in the core's own store: the active level, the coming level, and the timer.
// A core without a record was made by a version from before there were levels, and is at level 0. A
// new core begins at the highest level that its first leader's program supports.
//
// # What servers report
//
// A data node reports which levels its program supports when it registers, and with each heartbeat.
// The core keeps the report of the registration in the node's record. A member of the core reports
// its levels with each announcement. The leader keeps the reports of its term in memory. The
// answers carry the level of the cluster. In all three calls, a server whose program does not
// support the active and the coming level is refused with an explanation (Admit).
//
// # How the level rises
//
//  1. Finalising is refused with a list of the servers that do not support the new level, or whose
//     levels are not known (assess.go). Otherwise the record gets the new level as the coming one.
//  2. Servers learn of the coming level, note it on their disks, and say so. From then on they do
//     not start with a program that does not support it.
//  3. When every server that answers has noted it, and nothing else is in the way, the leader makes
//     the level active. Servers learn of that, and open their gates.
//
// The record has everything that a new leader needs to continue. The new leader receives within
// seconds which servers have recorded the coming level. In step 2, the leader does not wait for a
// server that does not answer, if its last registration says that its program supports the level.
// If that server comes back with another program, it is refused.
//
// A core that continues from one member may lack the record's last changes. Then servers report
// higher levels than the record has, and the leader raises the record to them.
//
// INVARIANT: the active level never falls, and the coming level is never taken back, because a
// server may have recorded it.
//
// INVARIANT: a registration commits only if the record is unchanged since the server was admitted.
// So no server is registered with a program that does not support the level.
package upgrade
