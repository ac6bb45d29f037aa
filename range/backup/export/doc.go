// Package export writes a unit of a backup: the rows of a span as they were at a moment, or the
// newest versions of a time, from the cluster to pieces in a target.
//
// A Source reads the rows. NewSource reads them from the nearest replicas that have closed the
// moment, page by page: a page comes from the partition that holds its first row at that time, so
// that splits, merges, moves and new leaders between two pages neither repeat nor leave out a row.
// Locks of transactions at or below the moment are waited for by the replica that reads.
//
// A Worker writes at most one piece at a time for a unit, so that its memory is bounded by
// Config.PieceBytes and one page, for each unit that it writes at the same time.
//
// A worker that fails leaves pieces that nobody names. Another attempt at the unit writes pieces of
// other names, and the one that creates the unit's Done first wins (package manifest).
package export
