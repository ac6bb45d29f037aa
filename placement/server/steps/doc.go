// Package steps decides what an operator does next. It is pure: its inputs are the operator, the
// newest descriptors of its partitions, the nodes that lead them, and how well nodes can take over
// leadership.
//
// An operator has no state but its goal. The next step follows from the present descriptors. So any
// leader of the core can continue an operator, and a step that is taken twice has no effect the
// second time. The three kinds of operators are in next.go (changes of replicas and leaders),
// split.go and merge.go, each with a table of its steps.
package steps
