// Package bootstrap forms a new consistent core, exactly once, from servers that know nothing but
// the list of each other's addresses.
//
// # How it works
//
// A server with an empty directory gives itself a random name (its server id), and stores it on
// disk before it sends anything. The servers of the list exchange hellos, each with its name, its
// address and its list. When the server with the lowest address has seen all of them, with equal
// lists, it proposes a Founding: a random cluster id, and the members with their names and replica
// ids. It stores the proposal on disk, so that it proposes the same after a crash, and asks all to
// accept.
//
// A server accepts one founding in its life, and has it on disk before it says so. When all have
// accepted, the core is founded: the proposer knows it from the answers, the others from its next
// hello, or by having seen all acceptances themselves. A member of a founded core starts from its
// disk and asks no peer.
//
// # Why there is never more than one
//
// INVARIANT: a founding counts only if every member that it names has accepted it, under the name
// it has there. Two foundings over the same servers would both need the acceptance of each, and a
// server accepts only one. A server whose disk was replaced has another name: it is not a member of
// the founding that its predecessor accepted, can neither complete nor join it, and says so. So it
// never votes in place of its former self.
//
// # An existing core
//
// The list of a founded core says only where to look for it. A server that finds a core of which it
// is not a member, or is in no list, offers itself: Run ends with ErrNotMember, and when the core
// has added the server, Join stores that on disk. Leave stores that it was removed, for good.
//
// WaitingFor and the log report differing lists, silent peers, and a founding accepted by a server
// whose disk is gone, and Run goes on: the server that has to be corrected is usually another one.
//
// # Structure
//
// machine is the protocol: it is pure, and every step is a function of the state on disk and of
// what was heard. Member adds the disk, the peers and the rounds of hello. A step that must be
// remembered is written to disk before a peer is told; the lock Member.mu is held meanwhile, which
// is harmless, since a core is formed once.
package bootstrap
