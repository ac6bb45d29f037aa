// Package watch distributes the changes of revisioned keys to watches: each watch has a span of
// keys, and gets each of its events once and in order.
//
// # Shape
//
// The watched state publishes the events of each revision to a Hub, which puts them into a ring in
// memory; publishing does no more, and waits for no watch. A Stream has any number of watches; a
// goroutine of its owner takes their events.
//
//	Publish ──► ring ──► distribute ──► live watches ────┐
//	              │   (behind the ring: the history)     ├──► queue of each stream ──► Take
//	              └────► catchUp ─────► watches that lag ┘
//
// The watches of a key are looked up (package spans), so that an event costs only the watches that
// it concerns. A queue is bounded. A watch whose queue has no room lags from that event on, and so
// does a watch that begins in the past. A lagging watch has a position in the history and no
// buffer. Once its stream has room, the watch takes part in passes over the history, each of which
// reads a stretch once for all lagging watches. So a stream that takes nothing delays no other, and
// costs no more than its queue.
//
// # What a watch gets
//
// The events of a revision come in one delivery, unless the revision is too large for memory. If
// events that a watch needs have been compacted, the watch ends, and its last delivery says so.
// Progress up to a revision is reported for a stream only when the owner has taken all events up to
// it, of all watches.
//
// # Locks and goroutines
//
// A hub has two goroutines, which Close ends. Hub.mu is taken before ring.mu, and never by Publish
// and Reset; ring.mu is a leaf. Neither is held while History.Changes runs.
//
// Of the project, the package imports only storepb, spans and range/keys: it depends neither on the
// store nor on its database.
package watch
