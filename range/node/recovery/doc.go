// Package recovery recovers partitions that have lost a majority of their replicas for good. It
// works on the directories of stopped servers, and is a deliberate act: writes that only lost
// replicas have acknowledged are lost.
//
// # Steps
//
//  1. Read makes a Survey of each surviving node: its replicas, how far their logs reach, and what
//     the node knew of the others. Nothing is changed.
//  2. Make compares the surveys. A partition whose replicas on these nodes can still decide is left
//     alone. For each other partition it chooses the replica with the last entry of the highest
//     term, and of these the one with the longest log: every entry that any survivor knows to be
//     committed is in that log. The Plan says for each partition what may be missing.
//  3. Apply carries out the plan on one node. The chosen replica applies all of its log, gets a new
//     replica id, and becomes its partition's only replica, with the membership raised by at least
//     MembershipStep. The partition's other replicas on surviving nodes learn the same descriptor,
//     so they are no longer members and answer no former replica; their data stays until the core's
//     table no longer names them.
//  4. When the servers run, the core is told of the plan. Until then it takes the new descriptors
//     for mistakes.
//
// # Invariants
//
//   - Every node that the survivors know of is either named as lost or has a survey: otherwise one
//     with a longer log, or a majority elsewhere, could be overlooked.
//   - No entry that changes replicas is left above the applied index of a replica whose descriptor
//     was replaced: such an entry would be no valid step from the new descriptor.
//   - Apply changes nothing if a replica is not as the survey found it. Once begun, it completes
//     however often it is interrupted: finished work is recognised. The caller keeps the server
//     from starting in between.
//   - Replica ids and memberships of a plan are above all that the survivors have ever heard of.
package recovery
