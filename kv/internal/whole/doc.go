// Package whole puts the changes of a feed into the order of their timestamps, grouped by the
// feed's progresses.
//
// A feed passes on the changes of different keys in any order, and changes above its next progress
// before that progress. A Buffer keeps changes until a progress covers them, and then yields them
// in the order of their timestamps, and those of one timestamp in the order of their keys. So the
// versions of a transaction come together, and the changes up to a progress make the state at its
// timestamp.
//
// A Buffer holds a bounded number of bytes in memory, and a bounded number beyond that in a
// temporary file (kv/internal/sorting). A feed asks whether there is room (Fits). If there is none,
// the feed makes the Buffer drop changes that the feed can request again (Forget): the Buffer is
// the feed's changes.Keeper. Changes that still do not fit are an error, ErrFull.
//
// # Imports
//
// kv/internal/sorting and hlc.
package whole
