// Package state holds all that the planner knows, and nothing that it has found out.
//
// A State has records of nodes, keyspaces and partitions in arrays, and the sums of what is on each
// node. It is told of the facts by SetNode, SetKeyspace, SetPartition, Merged and their opposites,
// and of time and of the operators in flight by Advance, once a step. Each of these notes what has
// changed; TakeChanges hands the changes to the step, so that the step looks at nothing else.
//
// # What is more than a copy of the facts
//
//   - An operator in flight counts as done in the sums at both ends, as far as the descriptor does
//     not show its change yet.
//   - The load of a partition is kept when its leader changes, until the new leader has measured.
//     What splits off inherits a part of the load of its parent, and a merged partition has the
//     load of both.
//   - The condition of a node is a function of the node and of time. A change of condition is a
//     change of every partition on the node.
//
// INVARIANT: the order in which a State was told of things does not matter for what is planned.
package state
