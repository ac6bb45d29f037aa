// Package lockqueue serves etcd's services Lock and Election.
//
// Both are queues of callers: those that want the same lock, or to lead in the same election. The
// queue of a name is the keys below the name, in the order of their creation. The caller whose key
// is the first has the lock, or leads. Each of the others waits for the key right before its own to
// go, so that the end of a key wakes one caller.
//
// A place in the queue is a key attached to a lease, and is named after the lease. It is taken by a
// transaction (KV) and waited for by a watch on this member, as clients of etcd do it with calls.
// The package keeps no state of its own.
package lockqueue
