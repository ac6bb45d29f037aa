// Package clockhealth decides whether a process may trust its own clock, by comparing it with those
// of its peers.
//
// # The parts of the answer
//
// hlc has the mechanism: an hlc.Steady leaves jumps out of its time, and marks its reading as
// untrusted from a step of the clock until Look has judged it. This package judges, with one Health
// for each Raft host of a process:
//
//	offsets     how far each peer's clock is from this one, by the pings that all hosts send
//	consensus   whether this clock agrees with a majority of those that are measured
//	quarantine  this clock has jumped, or was not compared yet: not trusted until peers confirm it
//	leases      since when a lease must have begun, if the monotonic clock may have stood still
//
// Each part is a file that knows nothing of Health. health.go holds them together and answers from
// them; check.go and look.go change the answer.
//
// # States
//
// A Health is in one State. Only in Trusted may the process serve.
//
//	          peers exist              enough peers confirm, or have no objection in time
//	Start ───────────────► Uncompared ───────────────────────────────────────┐
//	  │ no peers                │ jump                                       ▼
//	  └──────────────────────► (any) ───► Jumped ──── peers confirm ────► Trusted
//	                                                                      │     ▲
//	                           two checks in a row: against the majority  ▼     │ two checks for it
//	                                                                     Outvoted
//
// Outvoted takes precedence over the quarantine when both hold. A quarantine that ends because the
// peers agree ends Outvoted as well. The hybrid clock may also be too far ahead of a physical clock
// that was wrong and is right again: Ahead says so, and Rewind corrects it once the process leads
// nothing.
//
// # Who calls what
//
//	range/host        Heard, for each ping; LeaseFloor, for each read by a lease and each lease's
//	                  end
//	range/host        Believe, with each tick, for a member of the core: nothing but leases
//	                  depends on its clock, so a jump ends those and is believed
//	range/node        Look, with each tick: jumps and steps, and the end of a quarantine
//	range/node        Check, once a second: the consensus
//	range/node        State, to refuse requests and to give leaderships away; Ahead and Rewind
//	range/replica     State, when it is elected: only a trusted clock decides where the leader's
//	                  timestamps begin; until then it neither reads nor writes for a client
//	range/node        Agrees, before it hands a leadership to a peer; Offsets, for a metric
//	range/replica,    hlc.Clock.Reading: a timestamp to choose or to answer with, and whether it can
//	range/node        be trusted at this moment. It needs no judgement, and no lock but the clock's
//
// # Invariants
//
// INVARIANT: of two processes that measure the same clocks, and find each other's more than the
// maximum offset apart, at most one is Trusted (consensusOf).
//
// INVARIANT: if there are peers, no time from after a jump is used before the peers have confirmed
// it: the hlc.Steady goes on as if there had been no jump, until Look calls its Trust.
//
// INVARIANT: no lease that began before the monotonic clock may have stood still counts after the
// look that found it; and until that look none counts at all (hlc.Steady.Untrusted).
//
// # Locks
//
// Health has a lock of its own. It is a leaf, except that the lock of the hlc.Steady is taken
// inside. LeaseFloor takes none. Config.Peers is called without it. Times are nanoseconds of
// Config.Now. The package starts no goroutine, and imports only hlc.
package clockhealth
