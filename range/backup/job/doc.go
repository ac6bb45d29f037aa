// Package job makes a backup: it decides the moment, cuts the cluster into units, has data nodes
// write them, and completes the backup.
//
// # Resumption
//
// A job has no state of its own but its Spec. Everything else is in the target: the plan, which is
// created once, and the finished units. Run reads them and continues. So a Run that ends, for
// whatever reason, is repeated with the same Spec, by the same process or another one. Two Runs of
// one Spec at the same time do each other no harm: objects that decide something are created, never
// overwritten, and the Run that comes second takes what it finds.
//
// # Steps
//
//  1. Begin: everything that decides what the backup contains, in one object, the plan. The moment
//     is chosen, the history at it is protected, the coordination store is copied, and the
//     keyspaces and partitions are listed. A Run that is stopped before the plan exists begins
//     anew, with another moment.
//  2. Units: each unfinished unit is given to a node, one with a replica if there is one. A node
//     that fails is left alone for a while, and the unit goes to another one.
//  3. End: the manifest, the head, the removal of pieces that no unit names, and the end of the
//     protection.
//
// # What protects the history
//
// The backup reads at its moment for as long as it takes, which may be longer than the GC window of
// a keyspace. Cluster.Protect keeps the history from Begin to End, and is bounded: if the backup
// takes longer than Spec.Keep, it fails with an error that says so.
package job
