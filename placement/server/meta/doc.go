// Package meta has the records that placement keeps in the core's store: the partition table
// (nodes, keyspaces, partitions), ids, operators, events, and the records of the rooms that import
// this package. All keys are listed in keys.go, so that no two collide.
//
// A member of the core reads and writes the records through Records. View gives the leader an
// up-to-date view. On any other member it returns an error with a hint to the leader. Commit writes
// if its conditions hold.
//
// # Turns
//
// Calls that read, decide and write take turns within a leader (Turn, ViewInTurn). Turns only
// prevent calls from failing each other's conditions. Correctness depends on the conditions:
// another leader knows nothing of this leader's turns.
//
// INVARIANT: ids of nodes, keyspaces, partitions and operators are taken from one counter record,
// in the same transaction that uses them. The counters only rise. So no id is given out twice, even
// after crashes.
package meta
