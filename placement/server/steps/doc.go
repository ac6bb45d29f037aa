// Package steps decides what an operator does next. It is pure: it is given the operator, the
// newest descriptors of its partitions, the nodes that lead them, and how well nodes can take over
// a lead.
//
// An operator has no state but its goal. What is next follows from the descriptors as they are, so
// an operator goes on under whichever leader of the core, and a step that comes twice does nothing
// the second time. The three kinds are in next.go (changes of replicas and leaders), split.go and
// merge.go, each with a table of its steps.
package steps
