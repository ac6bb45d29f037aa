package planted

// Bug names a mistake.
type Bug string

// The mistakes.
const (
	// None is what every proper build has.
	None Bug = ""

	// VoteAtOnce: a follower that restarted votes at once, although it may have promised its leader otherwise before.
	VoteAtOnce Bug = "vote_at_once"
	// AckBeforeSync: entries and votes are acknowledged before they are synced.
	AckBeforeSync Bug = "ack_before_sync"
	// SkipLeaseCheck: a leader serves reads without looking whether its lease has run out.
	SkipLeaseCheck Bug = "skip_lease_check"
	// LeaseOnWallClock: leases are measured on the wall clock, which jumps.
	LeaseOnWallClock Bug = "lease_on_wall_clock"
	// ServeBeforeOwnEntry: a new leader serves before the first entry of its term is applied.
	ServeBeforeOwnEntry Bug = "serve_before_own_entry"
	// ForgetVote: the vote is not on disk, so a replica may vote twice in a term.
	ForgetVote Bug = "forget_vote"
	// AppliedOutsideBatch: the applied index is not written in the batch of what was applied.
	AppliedOutsideBatch Bug = "applied_outside_batch"
	// TruncateAboveDurable: the log is truncated at what is applied and not at what of it is durable.
	TruncateAboveDurable Bug = "truncate_above_durable"
	// SnapshotWithoutApplied: an installed snapshot leaves no applied index on disk.
	SnapshotWithoutApplied Bug = "snapshot_without_applied"
	// RouteByOldEpoch: a replica answers requests that were routed by another epoch of its descriptor.
	RouteByOldEpoch Bug = "route_by_old_epoch"
	// RetryAppliedTwice: a retry does not look for what an earlier attempt did.
	RetryAppliedTwice Bug = "retry_applied_twice"
	// SessionDropped: the servers ignore the timestamp that the session has seen.
	SessionDropped Bug = "session_dropped"
	// CacheNotRaised: a new leader's timestamp cache forgets the reads that earlier leaders served.
	CacheNotRaised Bug = "cache_not_raised"
	// PageBoundaryMissed: a page that ends by its limit resumes one key too far.
	PageBoundaryMissed Bug = "page_boundary_missed"
	// RemovedPeerPinged: a host goes on with heartbeats to a peer with which it shares no group any more.
	RemovedPeerPinged Bug = "removed_peer_pinged"
	// WipedNodeVotes: a node with an empty disk takes the place of the one that had its address, and votes as it.
	WipedNodeVotes Bug = "wiped_node_votes"
)

// All lists every mistake there is, in the order of the constants.
func All() []Bug {
	return []Bug{
		VoteAtOnce, AckBeforeSync, SkipLeaseCheck, LeaseOnWallClock,
		ServeBeforeOwnEntry, ForgetVote, AppliedOutsideBatch, TruncateAboveDurable,
		SnapshotWithoutApplied, RouteByOldEpoch, RetryAppliedTwice, SessionDropped,
		CacheNotRaised, PageBoundaryMissed, RemovedPeerPinged, WipedNodeVotes,
	}
}
