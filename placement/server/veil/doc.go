// Package veil hides keys of users from callers without a right to them: bounds of partitions in
// the streams of the partition table that clients route by (Viewer), and keys in lists, events and
// explanations of placement (Sight).
//
// # What streams are sent
//
// Bounds are keys of users. So a receiver without any right to a keyspace gets one partition for
// all of it (in a hash keyspace, one for each number) in place of the real ones. It has the id and
// the replicas of the first partition there, which begins where the keyspace does, and generation
// 0, which is before that of every real partition. A client routes by it as by a very old
// descriptor:
//
//   - The node checks a request's rights before it looks at generations. It refuses a client
//     without rights with an error that names the user and the right, and an unauthenticated client
//     as such. So no client waits for a table that never comes, whatever its version.
//   - If the user has got rights since, the refusal says that the generation is old, and has the
//     real partitions around the keys of the request. So a right counts as soon as the node has
//     heard of it, even if the stream of the table follows later.
//   - The real partitions take its place when they come: theirs is the later epoch.
//
// Its membership rises with the epoch of the partition that it stands for, so that of two the later
// one counts.
//
// A user with a right to some keys of a keyspace gets all of its partitions: to route, a client has
// to know the partitions around its keys.
//
// # When rights change
//
// Each update is checked when it is sent, by the token and the rights at that time: the token of a
// stream may have ended, and users and roles change. Losing a right needs no message. When the
// receiver may see more than before, because it shows a new token or its user got a right, the
// table is sent anew, with Reset; a receiver from which nothing was withheld is not checked for
// that. While the rights of the receiver are not known, bounds are withheld.
//
// INVARIANT: an update has bounds of a keyspace only if, at a moment after the update was begun,
// the guard had no authentication to follow, or knew a right of the receiver to that keyspace.
package veil
