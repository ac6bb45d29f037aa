// Package operators manages the operators of the cluster (Operators): changes of a partition's
// replicas or leader, splits and merges. It records operators that a user or the planner asks for,
// sends their steps as orders to the leaders of partitions, cancels operators, and ends them.
//
// An operator is a record in the core's store. A partition has at most one. The right partition of
// a merge has a record that names the left one. The next step of an operator follows from the
// descriptor (package steps), so the package has no state of its own, and needs no lock. Operators
// that are recorded from a view hold the turn of meta.Records, or are conditional on the records in
// the view.
//
//	operators.go  the type            find.go       the partition that is to be changed
//	record.go     begun, taken back   next.go       the next step
//	end.go        ended               list.go       listed, ordered
//	propose.go    by the planner      move.go, transfer.go, split.go, merge.go, cancel.go: asked for
package operators
