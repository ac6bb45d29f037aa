// Package outbox gathers the records that many goroutines send on one connection, and sends several
// of them in one message. Both ends of a client's stream, and the links between peers, use it: a
// lone caller pays no goroutine switch, and many callers share messages.
//
// A goroutine marshals its record under the outbox's lock. If nothing is on its way, it sends the
// record at once; otherwise it leaves the record to the outbox's goroutine, which sends all that
// has gathered.
//
// An Outbox has one lock, under which its owner also keeps the state of its records (which request
// waits for which answer, how much memory they take): call Lock, then methods that end in Locked,
// then Unlock, or UnlockAndSend if something was added. The only locks taken under it are those of
// package quota, and it is not held while the connection sends.
//
// The package imports rpc/transport and rpc/wire, and nothing else of Tidemark.
package outbox
