// Package veil keeps keys of users from those who have no right to them: bounds of partitions in
// the streams of the partition table that clients route by (Viewer), and the keys in lists, events
// and explanations of placement (Sight).
//
// # What streams are sent
//
// Bounds are keys of users. So a receiver without any right to a keyspace gets one partition for
// all of it (of a hash keyspace, one for each number) in place of the real ones. It has the id and
// the replicas of the first partition there, which begins where the keyspace does, and generation
// 0, which is before that of every real partition. A client routes by it as by a descriptor from
// long ago:
//
//   - The node judges a request before it looks at generations. It refuses a client without rights
//     with an error that names the user and the right, as it always did, and a client that is not
//     known as such. So no client waits for a table that never comes, whatever its version.
//   - If the user has got rights since, the refusal is that the generation is old, and has the real
//     partitions around the keys of the request. So a right counts as soon as the node has heard of
//     it, whenever the stream of the table follows.
//   - The real partitions take its place when they come: theirs is the later epoch.
//
// Its membership rises with the epoch of the partition that it stands for, so that of two the later
// one counts.
//
// A user with a right to some keys of a keyspace gets all of it: to route, a client has to know
// the partitions around its keys.
//
// # When rights change
//
// Each update is judged when it is sent, by what is shown and known then: the token of a stream may
// have ended, and users and roles change. What is withheld from then on needs no message. When the
// receiver may see more than before, because it shows a new token or its user got a right, the
// table is sent anew, with Reset; a receiver of which nothing was withheld is not looked at. While
// it is not known what the receiver may do, its bounds are withheld.
//
// INVARIANT: an update has bounds of a keyspace only if, at a moment after the update was begun,
// the guard had no authentication to follow, or knew a right of the receiver to that keyspace.
package veil
