// Package keyspaces creates, alters and drops keyspaces.
//
// Creating a keyspace is one transaction: the name is taken, the ids are allocated, the keyspace is
// CREATING, and what is still to be done is in a Creation record. From there Step goes on:
// it assigns the missing partitions and writes them in chunks, and makes the keyspace ACTIVE with
// its last transaction. Dropping likewise: DROPPING in one transaction, the partitions go in
// chunks, the keyspace last. Every transaction is conditional on the keyspace's record being what
// was read, so a step that is repeated, or that a deposed leader had under way, does no harm; the
// next leader goes on from what the store has.
//
// Requests that create or drop carry a token. The latest of them are kept with what was asked and
// what came of it, so that a repeated request is answered and not done again.
package keyspaces
