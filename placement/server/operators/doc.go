// Package operators keeps the operators of the cluster (Operators): changes of a partition's
// replicas or leader, splits and merges. It records them, as an operator or the planner asks;
// orders their steps from the leaders of partitions; takes them back; and ends them.
//
// An operator is a record in the core's store, at most one for each partition; the right partition
// of a merge has a record that names the left one. What comes next follows from the descriptor
// (package steps), so the package has no state of its own, and needs no lock. Operators that are
// recorded from a view hold the turn of meta.Records, or are conditional on what the view has.
//
//	operators.go  the type            find.go       the partition that is to be changed
//	record.go     begun, taken back   next.go       the next step
//	end.go        ended               list.go       listed, ordered
//	propose.go    by the planner      move.go, transfer.go, split.go, merge.go, cancel.go: asked for
package operators
