// Package meta has the records that placement keeps in the core's store: the partition table
// (nodes, keyspaces, partitions), ids, operators, events, and the records of the rooms above. All
// their keys are listed in keys.go, so that no two collide.
//
// A member of the core reads and writes them through Records. View gives the leader an up-to-date
// view, and any other member an error with a hint to the leader. Commit writes if conditions hold.
//
// # Turns
//
// Calls that read, decide and write take turns within a leader (Turn, ViewInTurn). Turns only save
// the calls from failing each other's conditions. Correctness rests on the conditions: another
// leader knows nothing of turns.
//
// INVARIANT: ids of nodes, keyspaces, partitions and operators are taken from one counter record in
// the same transaction that uses them, and the counters only rise. So no id is ever given out
// twice, whatever crashes.
package meta
