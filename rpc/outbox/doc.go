// Package outbox gathers the records that many goroutines have for one connection, and sends
// several in one message. Both ends of a client's stream, and the links between peers, send through
// it: a lone caller pays no goroutine switch, and many callers share messages.
//
// The goroutine that has a record marshals it under the outbox's lock, and if nothing is on its way
// sends it there and then; otherwise it leaves the record to the outbox's goroutine, which sends
// all that has gathered.
//
// An Outbox has one lock, under which its owner keeps what belongs to the records (which request
// waits for which answer, what they take of memory): Lock, then methods that end in Locked, then
// Unlock, or UnlockAndSend if something was added. No other lock is taken under it but those of
// package quota, and it is not held while the connection sends.
//
// The package imports rpc/transport and rpc/wire, and nothing else of Tidemark.
package outbox
