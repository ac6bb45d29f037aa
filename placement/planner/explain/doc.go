// Package explain says in words why partitions, nodes and keyspaces are as they are, as of the last
// step, and what stands in the way of removing or draining nodes. It asks the Objective what is
// wrong, and the Proposer what would be done about it. It changes nothing.
package explain
