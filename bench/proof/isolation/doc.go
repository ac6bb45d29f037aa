// Package isolation records transactions as their clients saw them, and looks for proof that a
// database did not isolate them as it claims.
//
// # Method
//
// The method is Elle's (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
// Experimental Observations", VLDB 2020) on the dependency graphs of Adya ("Weak Consistency: A
// Generalized Theory and Optimistic Implementations for Distributed Transactions", 1999). Every
// written value is unique for its key, so a read shows which transaction it read from. Lists show
// more: their elements stay, so the longest read of a key shows the order of its versions. These
// dependencies of the transactions that took effect follow from the reads:
//
//   - ww: one transaction wrote the version that the other replaced;
//   - wr: one transaction wrote the version that the other read;
//   - rw: one transaction read the version that the other replaced (anti-dependency);
//   - process: one transaction came before the other in its session;
//   - realtime: one transaction had ended before the other began.
//
// A history is serialisable if the graph has no cycle. The kind of a cycle is the name of the
// anomaly: see Anomaly. Snapshot isolation allows exactly the cycles in which two anti-dependencies
// follow one another (Fekete and others, "Making Snapshot Isolation Serializable", TODS 2005;
// Cerone and Gotsman, "Analysing Snapshot Isolation", PODC 2016). This is decided in a graph with
// two places for each transaction, which distinguish how the transaction was reached. So no search
// through cycles is needed.
//
// The data flow through these files: index (the writers of all values, the transactions that took
// effect, their reads, and anomalies without a cycle), lists and registers (dependencies), order
// (sessions and real time), timestamps, components (Tarjan), cycles and search (short cycles by
// breadth-first search), shortcut (order between transactions far apart in time), explain.
//
// INVARIANT: nothing is reported that some order allowed by the level explains. If the history does
// not show an order, there is no edge. A transaction of unknown outcome counts as committed only if
// another transaction that took effect saw one of its writes. It may take effect at any time after
// its begin, and orders nothing after its end.
//
// # Cost
//
// The check finds dependencies, the order in real time, and components in time linear in their
// number, apart from sorting. (The order in real time uses a frontier. A transaction has as many
// edges as other transactions run at the same time.) Whether there is a cycle is always decided,
// and then a cycle is always reported. Only the search for shorter cycles is bounded, and
// Report.GaveUp says that it met the bound. A stale read of an old version makes one component of
// all transactions between the write and the read. Even then the report shows only the few
// transactions that matter.
//
// # Limits
//
//   - The order of a register's versions is known only if a transaction read one version and wrote
//     the next, for the first version (absence comes before all), and, if they are claimed to order
//     versions, from real time and commit timestamps. Cycles through blind writes of unknown order
//     are missed. Lists have no such gap for the serialisable levels. Under snapshot isolation,
//     appends that no transaction read may hide a conflict between their writers.
//   - A component of transactions that depend on one another is reported once for each of its most
//     elementary classes. The component may also have a cycle of a higher class: correct the first
//     fault, and check again.
//   - Predicates are not modelled. Phantoms are found only if scans are recorded as reads of keys,
//     including absent keys.
//   - Reads of aborted transactions are not checked. Reads of a transaction of unknown outcome are
//     checked only if another transaction saw one of its writes.
//   - A lost write is a stale read at the end. Without real time nothing proves the loss, unless
//     the reader is marked as Final. A final read of a register proves the loss only if it finds
//     nothing.
//   - Deletes are not modelled. To test a database whose keys can be deleted, use values that mean
//     absence.
//
// The package starts no goroutine and imports nothing of Tidemark. It holds the whole history in
// memory.
package isolation
