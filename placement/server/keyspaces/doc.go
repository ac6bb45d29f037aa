// Package keyspaces creates, alters and drops keyspaces.
//
// Creating a keyspace is one transaction: the name is taken, the ids are allocated, the keyspace is
// CREATING, and a Creation record has what is still to be done. From there Step continues: it
// assigns the missing partitions and writes them in chunks, and makes the keyspace ACTIVE with its
// last transaction. Dropping is similar: DROPPING in one transaction, the partitions go in chunks,
// the keyspace last. Every transaction is conditional on the keyspace's record as it was read, so a
// step that is repeated, or that a deposed leader had under way, does no harm; the next leader
// continues from what the store has.
//
// Requests that create or drop carry a token. The latest tokens are kept with the request and its
// result, so that a repeated request is answered and not done again.
package keyspaces
