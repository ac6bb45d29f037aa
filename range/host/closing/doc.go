// Package closing closes timestamps for groups that sleep: one number for each pair of hosts, set
// of replicas and tick, however many groups there are.
//
// # The parts
//
//	Leading    what this host closes for the groups that it leads: sets of groups, and which
//	           hosts have affirmed them
//	Following  what others close for groups that follow them here
//
// Both travel with the pings that hosts send one another with each tick anyway (peerpb.HostPing). A
// ping has a round, and brings changes of the sets since the version that the receiver has
// acknowledged, and what is closed. The receiver's next ping answers: which sets it has, and which
// of their groups do not follow the sender any more.
//
// # Why it is right
//
// To close a timestamp for a group, its leader has to know that no other one was elected before a
// moment at which its clock had passed that timestamp: a later one writes above its own clock, and
// so above that (range/replica, closing.go). A leader that is awake knows by its lease. For one
// that sleeps its followers affirm, all groups at once: an answer to the ping of round k says that,
// when it was sent, each group of the set as of round k still followed the sender. So of a majority
// of the group's voters none had voted for another leader before round k, and none was elected.
//
//   - A majority is counted over the voters' hosts of the set, this one included. All groups of a
//     set have the same voters, on the same hosts.
//   - Groups that have come after round k were led under a lease when they came, which is later.
//   - Groups that a follower drops in an answer are taken out of the set before the answer counts.
//   - Affirming is a follower's word of the past: whatever it votes afterwards is after round k.
//
// INVARIANT: a group is taken out of its set, under the lock under which a set closes, before
// anything is evaluated in it. What the set has closed by then is what the group has promised; it
// writes above that.
//
// INVARIANT: a follower takes what is closed only if it has the set in the version in which it was
// closed: every removal before it is processed before it. A ping that was lost, or came twice, or
// late, changes nothing but when.
//
// A group that is added has an index: what is closed counts for a replica that has applied its log
// up to that.
//
// # Locks
//
// Leading and Following have a lock each, and are leaves, but for what Following calls: a Replica's
// Follows and NoteClosed, with its lock held.
package closing
