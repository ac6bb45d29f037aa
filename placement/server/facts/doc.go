// Package facts converts records and reports to the planner's types: nodes, keyspaces and
// partitions. It limits the figures that nodes report, so that sums of them do not overflow. The
// functions are pure.
package facts
