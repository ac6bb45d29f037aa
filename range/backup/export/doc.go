// Package export writes units of a backup. It reads the rows of a span from the cluster and writes
// them to pieces in a target. The rows are either those that could be read at a moment, or the
// newest versions within a period.
//
// A Source reads the rows. NewSource returns a Source that reads them page by page from the nearest
// replicas that have closed the moment. Each page comes from the partition that holds the page's
// first row when the page is read. So splits, merges, moves and new leaders between two pages
// neither repeat nor skip a row. The replica that reads waits for locks of transactions at or below
// the moment.
//
// For each unit a Worker holds at most one piece and one page in memory. The memory of a unit is
// therefore limited by Config.PieceBytes and the size of a page.
//
// A worker that fails leaves pieces that no other object refers to. The next attempt at the unit
// writes pieces with other names. The first attempt that creates the unit's Done wins (package
// manifest).
package export
