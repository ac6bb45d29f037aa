// Package changes runs a change feed: it asks partitions for their changes, side by side, hands
// these on as they come, and tells up to when all of them have come. It is for package kv.
//
// What is known is a frontier (package frontier): a timestamp for each part of the feed's keys. A
// part is asked for what is above its timestamp, by the Asker, and the answer moves it on: all of
// it, or, if a page was full, the keys before the page's end. Parts follow the
// partitions: before a part is asked it is cut where the partition that holds its first key ends,
// and after an answer the parts of that partition are joined that have come to the same timestamp.
// Of parts of one partition that have not, the lowest is asked up to the next one's timestamp, and
// the others wait for it. So a partition that was split, or merged, or of which a pass was not
// brought to its end, comes to one part, and nothing is asked for twice.
//
// INVARIANT: of each key, every version above where the feed begins is handed on once, the lower
// ones first: a part is asked by one question at a time, for versions above what is known of it,
// and its answer has them in that order.
//
// INVARIANT: what is told as progress is at or below what is known of every part, and all that was
// answered before has been handed on.
//
// A feed with a Keeper, which has bounded room for what waits for a progress, goes from window to
// window of time (window.go): changes that have no room are forgotten and asked for again. Then a
// version that is forgotten is handed on again, and the first invariant is of what is kept.
//
// Memory: a question names how large its answer may be, and there are only so many at a time, so
// that all answers together are within the budget, but for single changes that are larger than
// their question's share. Answers are taken by the goroutine that hands changes on, and by it new
// questions are asked: a consumer that does not take changes stops the feed.
//
// Run owns the goroutines that ask, and waits for them before it returns.
package changes
