// Package vacant remembers spans of keys in which nothing has a value any more, so that a scan need
// not walk over the tombstones in them again.
//
// A Memory belongs to one replica, and is not stored. Scans fill it: a scan that walks over many
// deleted keys in a row reports them (Walk). Writes that are applied to the replica correct it
// (Begin, Wrote, Reset, End). The zero Memory, and a nil one, remember nothing and are valid.
//
// # Why a scan may skip a vacant span
//
// A Span claims: of every key in it, the newest version is a tombstone, or has expired, at or below
// Since. That is true of the state when the span enters the memory, and stays true until a version
// is written there, since only garbage collection removes versions, and it removes a tombstone
// after all versions that the tombstone hides. A read at a timestamp at or above Since sees nothing
// in such a span. A read below Since may see something, and does not use the span.
//
// INVARIANT: the memory is told of a version (Wrote) before the batch with the version is
// committed. A read at T looks up spans only when every version that will ever exist at or below T
// is committed. So no version that the read has to see lies in a span that it finds.
//
// INVARIANT: a Walk begins before the iterator that finds the spans is opened, and Wrote informs
// running walks too. So the walk hears of every version that the iterator does not see. A walk that
// is begun while a batch is being committed may have missed the batch, and learns nothing.
//
// A tombstone that is written into a vacant span raises Since; a value ends the span at its key.
package vacant
