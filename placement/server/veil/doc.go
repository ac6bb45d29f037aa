// Package veil hides keys of users from callers who have no right to them. Viewer hides bounds of
// partitions in the streams of the partition table. Sight hides keys in lists, events and
// explanations of placement.
//
// # What streams contain
//
// Bounds of partitions are keys of users. So a receiver without any right to a keyspace gets one
// partition for the whole keyspace in place of the real partitions. In a hash keyspace it gets one
// for each hash number. This partition has the id and the replicas of the first real partition, and
// generation 0, which is lower than the generation of every real partition. A client routes by this
// partition as by a very old descriptor:
//
//   - The node checks a request's rights before it looks at generations. It refuses a client
//     without rights with an error that names the user and the right. It refuses an unauthenticated
//     client with the error for that. So no client of any version waits for a table that never
//     comes.
//   - If the user has received rights since, the refusal says that the generation is old, and
//     carries the real partitions around the keys of the request. So a right takes effect as soon
//     as the node knows of it, even if the stream of the table follows later.
//   - When the real partitions arrive, they replace this partition, because their epoch is later.
//
// The membership of this partition rises with the epoch of the real partition that it stands for.
// So the later of two such partitions counts.
//
// A user with a right to some keys of a keyspace gets all partitions of the keyspace: a client
// needs the partitions around its keys to route requests.
//
// # When rights change
//
// Each update is checked when it is sent, with the token and the rights at that time. The token of
// a stream may have expired, and users and roles may have changed. The loss of a right needs no
// message. A receiver may be allowed to see more than before, because it shows a new token or
// because its user got a right. Then the table is sent again, with Reset. A receiver from which
// nothing was withheld is not checked for that. While the rights of the receiver are not known,
// bounds are withheld.
//
// INVARIANT: an update has bounds of a keyspace only if, at a moment after the update was begun,
// the guard had no authentication to follow, or knew a right of the receiver to that keyspace.
package veil
