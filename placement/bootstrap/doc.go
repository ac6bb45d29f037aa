// Package bootstrap forms a new consistent core, once and only once, from servers that know nothing
// but the list of each other's addresses.
//
// # How it goes
//
// A server with an empty directory gives itself a random name (its server id), and keeps it on disk
// before it says anything. The servers of the list say hello to one another, each with its name,
// its address and its list. When the one with the lowest address has seen all of them, with equal
// lists, it proposes a Founding: a random cluster id, and the members with their names and replica
// ids. It keeps the proposal on disk, so that it proposes the same after a crash, and asks all to
// accept.
//
// A server accepts one founding in its life, and has it on disk before it says so. When all have
// accepted, the core is founded: the proposer knows it from the answers, the others from its next
// hello, or by having seen all acceptances themselves. A member of a founded core starts
// from its disk and asks no peer.
//
// # Why there is never more than one
//
// INVARIANT: a founding counts only if every member it names has accepted it under the name it has
// there. Two foundings over the same servers would both need each of them, and each accepts one. A
// server whose disk was replaced has another name: it is not a member of what its predecessor
// accepted, can neither complete nor join it, and says so. So it never votes as its former self.
//
// # A core that is there
//
// The list of a core that is founded says only where to look for it. A server that finds one of
// which it is no member, or is in no list, offers itself: Run ends with ErrNotMember, and when the
// core has added the server, Join keeps that on disk. Leave keeps that it was removed, for good.
//
// Differing lists, silent peers and a founding that was accepted by a server whose disk is gone are
// told by WaitingFor and in the log, and Run goes on: the server that has to be corrected is
// usually another one.
//
// # Structure
//
// machine is the protocol: pure, every step a function of what is on disk and what was heard.
// Member adds the disk, the peers and the rounds of hello. A step that has to be remembered is
// written to disk before a peer is told; the lock Member.mu is held meanwhile, which is harmless,
// since a core is formed once.
package bootstrap
