// Package peers has what a host knows of the hosts that share a group with it: which of them are
// silent, whose process is gone, and what each says of itself in its pings.
//
// A host is a peer as long as it shares a group (Add, Drop). The reader of its messages says so
// (Heard, NoteStatus, Refused); the ticker looks which hosts have newly been silent or gone
// (NewlySilent, NewlyGone). Times are nanoseconds of the caller's monotonic clock.
//
// INVARIANT: the status of a host is that of the ping with the highest number of its latest
// process, in whatever order pings arrive.
//
// # Locks
//
// Peers has a lock of its own, under which nothing else is locked or called.
//
// # Imports
//
// range/group, for what a configuration and a share of the reserve are, and peerpb.
package peers
