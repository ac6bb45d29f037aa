// Package watches serves etcd's Watch service from a store.
//
// A stream has one goroutine that receives requests, and one that answers them and sends events: so
// the creation of a watch is answered before its first event, and fragments of a response come one
// after the other. Events come from a watch.Stream, which has a bounded queue. While a client does
// not read, its sender blocks, by gRPC's flow control, and its watches fall behind and are served
// from the database later; no other stream waits. A client that reads nothing for long loses its
// stream, with an error after which etcd's clients connect again and go on where they were. Both
// goroutines end with the call.
//
// The service differs from etcd in harmless ways:
//
//   - A request for the progress of a stream whose watches lag, or begin later, is answered when
//     they have caught up. etcd drops it, and etcd 3.7 drops it also for a watch that begins at
//     the next revision. Watches that ended for a compaction do not count.
//   - A response may have the events of several revisions that etcd sends one by one, and the other
//     way round. The revision of its header is that up to which the watch has everything.
//   - A watch for which one revision has more than Config.MaxRevisionBytes of events is cancelled,
//     and the reason says so.
//
// Whether a client may watch the keys that it names is decided before a request gets here.
package watches
