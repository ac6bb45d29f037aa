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

	// Those below need transactions to be noticed.

	// RefreshSkipped: a transaction commits at a later timestamp than it read at, and does not look whether what it read is still so.
	RefreshSkipped Bug = "refresh_skipped"
	// RefreshNotRecorded: a refresh leaves no trace, neither in the timestamp cache nor, by its own timestamp or that of its session, in the
	// clock, so that others may write at or below it.
	RefreshNotRecorded Bug = "refresh_not_recorded"
	// RecordRevived: a heartbeat that comes when its transaction has been aborted makes a new record.
	RecordRevived Bug = "record_revived"
	// DecisionNotDurable: a commit is answered, and locks are resolved, while the record is still on its way to be durable.
	DecisionNotDurable Bug = "decision_not_durable"
	// CommitBelowPrepare: the commit timestamp is that of the last partition that prepared, and not the highest.
	CommitBelowPrepare Bug = "commit_below_prepare"
	// WaitForLatest: commit wait ends when the fastest clock has passed the timestamp, and not the slowest.
	WaitForLatest Bug = "wait_for_latest"
	// UncertaintyForgotten: a read that is moved to a later timestamp takes nothing above that for uncertain.
	UncertaintyForgotten Bug = "uncertainty_forgotten"
	// PushIgnored: a transaction commits at a timestamp at which others have read already that it had not.
	PushIgnored Bug = "push_ignored"
	// OwnDeletesSeen: a scan in a transaction finds what the transaction itself has deleted.
	OwnDeletesSeen Bug = "own_deletes_seen"
	// OnePhaseOverLock: a one-phase commit writes a key that another transaction has locked.
	OnePhaseOverLock Bug = "one_phase_over_lock"
	// AbortedAfterCommit: whoever asks about a transaction that committed long ago takes it for abandoned, and aborts it.
	AbortedAfterCommit Bug = "aborted_after_commit"
	// AgeLost: a transaction that runs again is as young as its last attempt.
	AgeLost Bug = "age_lost"
	// HeldSpanIgnored: others write in a span that a transaction holds.
	HeldSpanIgnored Bug = "held_span_ignored"
	// OnePhaseUnchecked: a one-phase commit does not look whether what it read is still so.
	OnePhaseUnchecked Bug = "one_phase_unchecked"
	// LocksForgotten: a replica that starts does not know which keys were locked.
	LocksForgotten Bug = "locks_forgotten"
	// ReadThroughLock: a read does not ask how the transactions stand whose locks it meets.
	ReadThroughLock Bug = "read_through_lock"
	// ReignUnchecked: what was read under volatile locks is taken for good although the leader that gave it, and lost what was in flight, leads no more.
	ReignUnchecked Bug = "reign_unchecked"
)

// All lists every mistake there is, in the order of the constants.
func All() []Bug {
	return append([]Bug{
		VoteAtOnce, AckBeforeSync, SkipLeaseCheck, LeaseOnWallClock,
		ServeBeforeOwnEntry, ForgetVote, AppliedOutsideBatch, TruncateAboveDurable,
		SnapshotWithoutApplied, RouteByOldEpoch, RetryAppliedTwice, SessionDropped,
		CacheNotRaised, PageBoundaryMissed, RemovedPeerPinged, WipedNodeVotes,
	}, Transactional()...)
}

// Transactional lists the mistakes that only transactions notice.
func Transactional() []Bug {
	return []Bug{
		RefreshSkipped, RefreshNotRecorded, RecordRevived, DecisionNotDurable,
		CommitBelowPrepare, WaitForLatest, UncertaintyForgotten, PushIgnored,
		OwnDeletesSeen, OnePhaseOverLock, AbortedAfterCommit, AgeLost, HeldSpanIgnored,
		OnePhaseUnchecked, LocksForgotten, ReadThroughLock, ReignUnchecked,
	}
}
