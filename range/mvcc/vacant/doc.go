// Package vacant remembers spans of keys in which nothing has a value any more, so that a scan need
// not walk over the tombstones in them again.
//
// A Memory belongs to one replica, and lies in memory only. It is filled by scans: one that walks
// over many deleted keys in a row says so (Walk). It is corrected by what is applied to the replica
// (Begin, Wrote, Reset, End). The zero Memory, and a nil one, remember nothing and are valid.
//
// # Why a scan may skip a vacant span
//
// A Span says: of every key in it, the newest version is a tombstone, or has expired, at or below
// Since. That is true of the state when the span is taken into the memory, and stays true until a
// version is written there, for versions go only by garbage collection, which removes a tombstone
// after all that the tombstone hides. A read at a timestamp at or above Since sees nothing in such
// a span. A read below Since may see something, and does not use the span.
//
// INVARIANT: a version is told to the memory (Wrote) before the batch that has the version is
// committed. A read at T looks for spans when all that is ever written at or below T is committed.
// So the read finds no span that one of the versions which it has to see has ended.
//
// INVARIANT: a Walk is begun before the iterator is opened that finds the spans, and Wrote tells
// the walk, too. So a version that the iterator does not see is one that the walk hears of. A walk
// that is begun while a batch is being committed may have missed the batch, and learns nothing.
//
// A tombstone that is written into a vacant span raises Since; a value ends the span at its key.
package vacant
