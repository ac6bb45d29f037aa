// Package upgrade raises the level of the cluster, by which servers may use new formats and
// messages (package rpc/release), and refuses servers whose programs do not support that level.
//
// # The record
//
// The level is a record in the core's own store: the active level, the coming one, and the timer. A
// core without a record was made by a version from before there were levels, and is at level 0. A
// new core begins at the highest level that its first leader's program supports.
//
// # What servers say
//
// A data node says which levels its program supports when it registers, which the core keeps in the
// node's record, and with each heartbeat; a member of the core, with each announcement. The leader
// keeps in memory what it has been told in its term. The answers have the level of the cluster. A
// server whose program does not support the active and the coming level is refused in all three
// calls, with a sentence (Admit).
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
// The record holds all that a new leader needs to go on; what servers have noted it hears within
// seconds. A server that does not answer is not waited for in step 2 if its last registration says
// that its program supports the level: it is refused if it comes back with another program.
//
// A core that goes on from one member may lack the record's last changes. Then servers report
// levels above those of the record, and the leader raises it to them.
//
// INVARIANT: the active level never falls, and the coming one is never taken back: a server may
// have noted it.
//
// INVARIANT: a registration commits only if the record is still the one by which it was admitted.
// So no server is registered with a program that does not support the level.
package upgrade
