// Package watch distributes the changes of revisioned keys to watches: each watch has a span of
// keys, and gets each of its events once and in order.
//
// # Shape
//
// The watched state publishes the events of each revision to a Hub, which puts them into a ring in
// memory; publishing does no more for watches and waits for none. A Stream has any number of
// watches; a goroutine of its owner takes what there is for them.
//
//	Publish ──► ring ──► distribute ──► live watches ────┐
//	              │   (behind the ring: the history)     ├──► queue of each stream ──► Take
//	              └────► catchUp ─────► watches that lag ┘
//
// The watches of a key are looked up (package spans), so that an event costs only the watches that
// it concerns. A queue is bounded. A watch whose queue has no room lags from there on, as does a
// watch that begins in the past: it has a position in the history and no buffer. Once its stream
// has room it takes part in passes over the history, each of which reads a stretch once for all
// watches that lag. So a stream that takes nothing delays no other, and costs no more than its
// queue.
//
// # What a watch gets
//
// All of a revision comes in one delivery, except for a revision that is too large for memory. If
// what a watch needs has been compacted meanwhile, it ends and its last delivery says so. Progress
// up to a revision is reported for a stream only when all of its watches have everything up to it,
// including what was taken.
//
// # Locks and goroutines
//
// A hub has two goroutines, which Close ends. Hub.mu is taken before ring.mu, and never by Publish
// and Reset; ring.mu is a leaf. Neither is held while History.Changes runs.
//
// The package imports nothing of the project but storepb, spans and range/keys: it knows neither
// the store nor its database.
package watch
