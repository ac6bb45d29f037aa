// Package hlc is Tidemark's time: hybrid logical timestamps, the clock that gives them out, and
// bounds on true time.
//
// A Timestamp is physical nanoseconds plus a logical counter. It names a version; it is not a clock
// reading, which is why the two have different types (Timestamp, and plain int64 nanoseconds).
//
// A Clock is built from two parts: a Physical (the operating system's clock, or a Manual one in
// tests) and a BoundSource (how far the physical clock may be from true time). Now gives strictly
// increasing timestamps; Update merges a timestamp that came in with a message, so that whatever
// follows the message gets a later timestamp; Bounds gives an interval that contains true time as
// long as the bound source is right. A commit with commit wait is not shown before the interval
// lies above its timestamp, which is not below WaitFloor: then such commits are ordered as in real
// time.
//
// A Steady stands between a Clock and a Physical that may jump: it notices jumps by a monotonic
// clock, and leaves them out until its owner (range/clockhealth) has found out which time is right.
//
// INVARIANT: Now never returns a timestamp at or below one that it returned, or that Update
// accepted, before, even if the physical clock jumps back.
//
// INVARIANT: no timestamp is ever more than one MaxAhead ahead of the fastest physical clock of the
// cluster. Physical clocks differ by at most MaxOffset, so no timestamp is more than two MaxAhead
// ahead of any physical clock. Timestamps come from physical clocks and WaitFloor; from the
// beginning of a leadership, when they are one MaxAhead ahead of the leader's clock; and from a
// request that names one. The last are accepted only when they are at most one MaxAhead ahead of
// the physical clock of the accepting node (Delay), and clients do not read at timestamps that they
// merely expect some clock to show. Timestamps in the state are accepted at once: they were given
// in one of the other ways. So what is acknowledged before a read begins has a timestamp at or
// below any node's physical clock at that time plus twice MaxAhead, which is a client's limit of
// uncertainty.
//
// INVARIANT: Update never lets a message carry the clock further ahead of the physical clock than
// twice MaxAhead: one broken clock in a cluster is refused by the others instead of infecting them.
//
// The package imports the standard library and range/invariants only, starts no goroutines and
// never sleeps.
package hlc
