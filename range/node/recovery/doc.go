// Package recovery lets partitions go on that have lost a majority of their replicas for good. It
// works on the directories of servers that do not run, and is a deliberate act: what was
// acknowledged by replicas that are lost, and by no other, is lost.
//
// # How it goes
//
//  1. Read makes a Survey of each surviving node: its replicas, how far their logs reach, and what
//     the node knew of the others. Nothing is changed.
//  2. Make compares the surveys. A partition whose replicas on these nodes can still decide is left
//     alone. Of the others, the replica with the last entry of the highest term, and of these with
//     the longest log, is to go on: every entry that any of the survivors knows to be committed is
//     in its log. The Plan says for each partition what can be missing.
//  3. Apply carries out the plan on one node. The replica that goes on applies all of its log, gets
//     a new replica id, and is its partition's only one, with the membership raised by at least
//     MembershipStep. The partition's other replicas on surviving nodes learn the same descriptor,
//     so they are out and answer no former replica; their data stays until the core's table names
//     them out.
//  4. When the servers run, the core is told of the plan. Until then it takes the new descriptors
//     for mistakes.
//
// # Invariants
//
//   - Every node that the survivors know of is either named as lost or has a survey: otherwise one
//     with a longer log, or a majority elsewhere, could be overlooked.
//   - No entry that changes replicas is left above the applied index of a replica whose descriptor
//     was replaced: such an entry would be no step from the new one.
//   - Apply changes nothing if a replica is not as the survey found it. When it has begun, it goes
//     on to its end however often it is interrupted: what was done is found done. The caller keeps
//     the server from starting in between.
//   - Replica ids and memberships of a plan are above all that the survivors have ever heard of.
package recovery
