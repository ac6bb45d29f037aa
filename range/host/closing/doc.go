// Package closing closes timestamps for sleeping groups: one number for each pair of hosts, set of
// replicas and tick, however many groups there are.
//
// # The parts
//
//	Leading    what this host closes for the groups that it leads: sets of groups, and which
//	           hosts have affirmed them
//	Following  what other hosts close for groups that follow them here
//
// Both travel with the pings that hosts send one another at each tick anyway (peerpb.HostPing). A
// ping has the number of a round. It carries the closed timestamps, and the changes of the sets
// since the version that the receiver has acknowledged. The receiver's next ping answers which sets
// the receiver has, and which of their groups no longer follow the sender.
//
// # Why it is right
//
// To close a timestamp for a group, its leader must know that no other leader was elected before a
// moment at which its own clock had passed that timestamp: a later leader writes above its own
// clock, and so above the timestamp (range/replica, closing.go). An awake leader knows this by its
// lease. For a sleeping leader its followers affirm it, for all groups of a set at once: the answer
// to the ping of round k says that, when the answer was sent, each group of the set as of round k
// still followed the sender. If a majority of the group's voters affirms, none of that majority had
// voted for another leader before round k, so no other leader was elected before it.
//
//   - A majority is counted over the hosts of the set's voters, this one included. All groups of a
//     set have the same voters, on the same hosts.
//   - A group that was added after round k was led under a lease when it was added, which is later.
//   - Groups that a follower drops in an answer are taken out of the set before the answer counts.
//   - An affirmation is about the past: whatever a follower votes afterwards comes after round k.
//
// INVARIANT: before anything is evaluated in a group, the group is taken out of its set, under the
// lock under which the set closes. The group's promise is what the set has closed by then, and the
// group writes above it.
//
// INVARIANT: a follower accepts a closed timestamp only if it has the set in the version for which
// the timestamp was closed: it has processed every earlier removal. A ping that is lost, repeated
// or late only delays what is closed.
//
// A group is added with an index: a closed timestamp counts for a replica that has applied its log
// up to that index.
//
// # Locks
//
// Leading and Following have a lock each. Both are leaves, except that Following calls a Replica's
// Follows and NoteClosed with its lock held.
package closing
