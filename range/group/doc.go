// Package group is one Raft group: go.etcd.io/raft/v3 plus what a Multi-Raft database needs of
// every group, as a passive core. It starts no goroutine, reads no clock and writes nothing;
// range/host drives it, and scenario tests drive it by hand. It handles bytes, not keys.
//
// # Data flow
//
// The host feeds a Group with messages (Step), ticks, proposals, read requests and the answers of
// the storage threads, and then takes one Output: messages for peers, entries to append, entries to
// apply, and news for the host. RawNode runs with AsyncStorageWrites: sending, appending and
// applying all go on at the same time.
//
// # The leader lease
//
// A heartbeat carries the leader's monotonic clock (Sent), and its response returns that reading. A
// follower that answered a heartbeat will not vote for another replica for one election timeout
// (CheckQuorum's and PreVote's rule in Raft). So if a quorum answered heartbeats sent at or after
// s, no other replica can lead before s + election timeout; the lease ends a drift margin before
// that. Only the leader's clock is read, only differences matter, and delay makes the lease
// shorter, never longer. (Gray and Cheriton, Leases, SOSP 1989; Ongaro's thesis, section 6.4.1.)
//
// INVARIANT: at most one replica of a group holds a lease at any true time (DESIGN invariant 3).
// What it takes:
//   - The follower keeps its promise by the clock (leasePromise), whatever happens to Raft's ticks:
//     they are skipped when the host of a sleeping leader is gone, and a replica may be told to
//     campaign.
//   - A follower that restarted has forgotten its promise. Until it has been up for one election
//     timeout the host keeps it from voting (WithholdVotes). Votes of a leadership transfer are let
//     through, because:
//   - A leader that starts a transfer first gives its lease up, for the rest of its term: the
//     message that makes the other replica campaign may be delivered late.
//   - An answer counts only if the follower is still in the leader's term when the answer leaves.
//     Messages that came with the heartbeat may have raised the term; then a vote for another
//     replica may leave together with the answer.
//   - A process that was paused finds that the lease has run out on the monotonic clock, which goes
//     on during the pause.
//
// Some reads need more: that no other replica leads before the lease ends, even if the leadership
// ends earlier because the leader hears of a higher term (range/replica/read/lease_check.go). So
// when a leadership ends before its lease, the old leader itself promises not to vote until the
// lease ends. A leader that hands over without having closed the timestamps that it served waits
// for the end of the lease (Resign).
//
// # Sleep
//
// A leader that has had nothing to do for a while, and whose followers are all reachable and have
// all entries, sends a last heartbeat that says so and sleeps; so do the followers. A sleeping
// group is not ticked and sends nothing. Its lease runs out, so that the first read after waking
// costs a heartbeat round. Any message or proposal wakes a replica. If the host of a sleeping
// leader dies, the hosts notice by their pings, and wake the followers. If so many hosts are silent
// that no quorum is left, the leader is woken: awake, it finds out that it does not lead any more.
//
// # Leader aversion
//
// A replica that would lead badly leaves campaigns to the others for a while (leader_aversion.go).
// Safety does not suffer, and liveness only until that while is over.
package group
