// Package keyspaces creates, alters and drops keyspaces.
//
// A keyspace is created by one transaction: it takes the name, allocates the ids, writes the
// keyspace in the state CREATING, and writes a Creation record with the remaining work. Step
// continues from there: it assigns the missing partitions, writes them in chunks, and makes the
// keyspace ACTIVE in the last transaction. A drop works in the same way: one transaction sets the
// state to DROPPING, then the partitions are removed in chunks, and the keyspace is removed last.
// Every transaction is conditional on the keyspace's record as it was read. So a repeated step, or
// a late step of a deposed leader, does no harm. The next leader continues from the state in the
// store.
//
// Requests that create or drop carry a token. The latest tokens are stored with the request and its
// result. A repeated request gets the stored result, and is not done again.
package keyspaces
