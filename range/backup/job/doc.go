// Package job makes a backup: it decides the moment, cuts the cluster into units, has data nodes
// write them, and completes the backup.
//
// # Resumption
//
// A job has no state besides its Spec and the objects in the target: the plan, which is created
// once, and the finished units. Run reads these objects and continues from them. A Run that ends
// early, for any reason, is repeated with the same Spec, by the same process or another one. Two
// concurrent Runs of one Spec do no harm: objects that decide something are created and never
// overwritten, and the Run that comes second uses the object that it finds.
//
// # Steps
//
//  1. Begin: create the plan, one object with everything that determines the content of the
//     backup. The moment is chosen, the history at the moment is protected, the coordination store
//     is copied, and the keyspaces and partitions are listed. A Run that is stopped before the plan
//     exists begins anew, with another moment.
//  2. Units: each unfinished unit is given to a node, one with a replica if there is one. A node
//     that fails is left alone for a while, and the unit goes to another one.
//  3. End: the manifest, the head, the removal of pieces that no unit names, and the end of the
//     protection.
//
// # What protects the history
//
// The backup reads at its moment during its whole run, which may be longer than the GC window of a
// keyspace. Cluster.Protect keeps the history from Begin to End. The protection is limited: if the
// backup takes longer than Spec.Keep, the backup fails with an error that says so.
package job
