// Package peers holds what a host knows of the hosts that share a group with it: which of them are
// silent, whose process is gone, and what each says of itself in its pings.
//
// A host is a peer as long as it shares a group (Add, Drop). The reader of its messages reports
// what it hears (Heard, NoteStatus, Refused); the ticker asks which hosts have newly become silent
// or gone (NewlySilent, NewlyGone). Times are nanoseconds of the caller's monotonic clock.
//
// INVARIANT: the status of a host is that of the highest-numbered ping of its latest process, in
// whatever order pings arrive.
//
// # Locks
//
// Peers has one lock. While it is held, no other lock is taken and nothing outside the package is
// called.
//
// # Imports
//
// range/group for configurations and shares of the reserve, and peerpb.
package peers
