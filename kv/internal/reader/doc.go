// Package reader reads keys and spans of a keyspace, each call at one timestamp, from whichever
// partitions and replicas hold them. It knows neither transactions nor the options of package kv.
//
// A span is read page by page (Pager): a page ends at the end of its partition, so a split or a
// merge on the way neither repeats nor misses a key. A Scan merges the pages of all partitions in
// key order, and a Count adds theirs. Keys are read in Groups, one for each partition. Moment finds
// a timestamp that is late enough for all partitions of a span; Near lets replicas that do not lead
// answer. A transaction takes part through its Reading, which says what is uncertain.
//
// Errors are those of package route.
package reader
