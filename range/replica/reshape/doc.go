// Package reshape changes a partition: its span, by splits and merges, its replicas, and whether it
// is frozen. Each change is an entry of the partition's log, made by the leader and checked again
// by all replicas that apply it: the rules are functions of descriptors (Check...), and entries are
// decoded by Decode...
//
// A Reshaper belongs to one replica, and has no state and no lock. The replica keeps the requests
// that wait for an entry that reshapes the partition (Evaluation.HoldBack). SplitStats are counted
// under the replica's lock.
package reshape
