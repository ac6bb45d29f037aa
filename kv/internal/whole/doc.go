// Package whole puts the changes of a feed into the order of their timestamps, grouped by the feed's
// progresses.
//
// A feed hands on the changes of different keys in any order, and changes that lie above its next
// progress before that progress. A Buffer keeps changes until a progress covers them, and then
// returns all that it covers: in the order of their timestamps, those of one timestamp in the order
// of their keys. So the versions of a transaction stand side by side, and the changes up to a
// progress make the state of one moment.
//
// A Buffer holds a bounded number of bytes in memory, and a bounded number beyond that in a temporary
// file (kv/internal/sorting). A feed asks whether there is room (Fits), and has changes forgotten
// that it can ask for again if there is none (Forget): the Buffer is the changes.Keeper of a feed.
// What does not fit all the same is an error, ErrFull.
//
// # Imports
//
// kv/internal/sorting and hlc.
package whole
