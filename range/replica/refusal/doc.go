// Package refusal makes the errors with which a replica answers: what happened, to which partition,
// and what the client can do. It distinguishes a refusal after which the request never takes effect
// from one whose outcome is unknown.
//
// Nothing here takes the replica's lock. A refusal that names a leader, nodes or partitions asks
// the group and the node, and so is not made under that lock.
package refusal
