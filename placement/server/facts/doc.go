// Package facts makes of records and reports what the planner is told: nodes, keyspaces and
// partitions in the planner's terms. Figures that nodes report are bounded here, so that sums of
// them fit. The functions are pure.
package facts
