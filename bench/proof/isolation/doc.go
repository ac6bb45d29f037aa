// Package isolation records transactions as their clients saw them, and looks for proof that a
// database did not isolate them as it claims.
//
// # Method
//
// The method is Elle's (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
// Experimental Observations", VLDB 2020) on the dependency graphs of Adya ("Weak Consistency: A
// Generalized Theory and Optimistic Implementations for Distributed Transactions", 1999). Every
// written value is unique for its key, so that a read tells which transaction it read from. Lists
// tell more: what is appended stays, so that the longest read of a key is the order of its
// versions. From this follow the dependencies of the transactions that took effect:
//
//   - ww: one wrote the version that the other replaced;
//   - wr: one wrote the version that the other read;
//   - rw: one read the version that the other replaced (anti-dependency);
//   - process: one came before the other in its session;
//   - realtime: one had ended before the other began.
//
// A history is serialisable if the graph has no cycle. The kind of a cycle is the name of the
// anomaly: see Anomaly. Snapshot isolation allows exactly the cycles in which two anti-dependencies
// follow one another (Fekete and others, "Making Snapshot Isolation Serializable", TODS 2005;
// Cerone and Gotsman, "Analysing Snapshot Isolation", PODC 2016). That is decided in a graph with
// two places for each transaction, one for how it was reached, so that it needs no search through
// cycles.
//
// Data flows in this order: index (the writers of all values), observe (which took effect and what
// they read, with the anomalies that need no cycle), lists and registers (dependencies), order
// (sessions and real time), timestamps, components (Tarjan), cycles and search (short cycles,
// breadth first), shortcut (order between transactions far apart in time), explain.
//
// INVARIANT: nothing is reported that some order allowed by the level explains. Where the history
// does not tell an order, there is no edge. A transaction of unknown outcome counts as committed
// only if another that took effect saw a write of it; it may take effect at any time after its
// begin, and orders nothing after its end.
//
// # Cost
//
// Dependencies, the order in real time (a frontier; as many edges for a transaction as others run
// beside it) and the components are found in time linear in their number, apart from sorting.
// Whether there is a cycle is always decided, and there is always one to show; only the search for
// shorter ones is bounded, and Report.GaveUp says that it met the bound. A stale read of long ago
// makes one component of all that lies between; the few transactions that matter are shown all the
// same.
//
// # What can be missed
//
//   - The order of a register's versions is known only where a transaction read one and wrote the
//     next, for the first version (absence comes before all), and, where they are claimed to order
//     versions, from real time and commit timestamps. Cycles through blind writes whose order is
//     not known are missed. Lists have no such gap for the serialisable levels; under snapshot
//     isolation, appends that no transaction read may hide a conflict between their writers.
//   - A component of transactions that depend on one another is reported once for each of its most
//     elementary classes. A cycle of a higher class in the same component may be there too: mend
//     the first, and look again.
//   - Predicates are not modelled: phantoms are found only as far as a scan is recorded as reads of
//     keys, absent ones too.
//   - What aborted transactions read is not checked; nor is what a transaction of unknown outcome
//     read that left no trace.
//   - A lost write is a stale read at the end: without real time nothing proves it, unless the
//     reader is marked as Final. A register's final read proves it only if it finds nothing.
//   - Deletes are not modelled. A database whose keys can vanish is to be tested with values that
//     mean absence.
//
// The package starts no goroutine and imports nothing of Tidemark. It holds the whole history in
// memory.
package isolation
