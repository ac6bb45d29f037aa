// Package reshape changes what a partition is: its span, by splits and merges, its replicas, and
// whether it is frozen. Each change is an entry of the partition's log, made by the replica that
// leads and checked once more by all that apply it: the rules are functions of descriptors
// (Check...), and what an entry says is read by Decode...
//
// A Reshaper belongs to one replica, and has no state and no lock. What waits for an entry that
// reshapes the partition, and what it closes, is kept by the replica (Evaluation.HoldBack).
// SplitStats are counted under the replica's lock.
package reshape
