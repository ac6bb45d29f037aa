// Package changes runs a change feed: it asks partitions for their changes in parallel, passes the
// changes on as they come, and reports up to which timestamp all of them have come. It is for
// package kv.
//
// The state is a frontier (package frontier): a timestamp for each part of the feed's keys. The
// Asker asks for the changes of a part above its timestamp. The answer advances the part: all of it
// or, if a page was full, the keys before the page's end. Parts follow the partitions: before a
// part is asked it is cut at the end of the partition that holds its first key, and after an answer
// the parts of that partition that have reached the same timestamp are joined. If the parts of one
// partition are at different timestamps, the lowest is asked up to the next one's timestamp, and
// the others wait for it. So a partition that was split, or merged, or whose pages were not all
// read, becomes one part again, and nothing is asked for twice.
//
// INVARIANT: of each key, every version above the beginning of the feed is passed on once, the
// lower ones first: a part has one question at a time, for versions above its timestamp, and the
// answer has them in that order.
//
// INVARIANT: a progress is at or below the timestamps of all parts, and all answers before it have
// been passed on.
//
// A feed with a Keeper, which has bounded room for what waits for a progress, advances from window
// to window of time (window.go): changes that find no room are forgotten and asked for again. A
// forgotten version is passed on again, and the first invariant holds for the versions that are
// kept.
//
// Memory: a question limits the size of its answer, and the number of questions at a time is
// limited, so that all answers together are within the budget, except for single changes that are
// larger than their question's share. The goroutine that passes changes on takes the answers and
// asks new questions: a consumer that does not take changes stops the feed.
//
// Run owns the goroutines that ask, and waits for them before it returns.
package changes
