// Package admission decides how background work makes way for requests: one load signal, and one
// pacer.
//
// # Load
//
// Load is how long ago a node was last asked for something by the foreground: reads, writes, locks
// of small transactions. It is a time and not a utilisation, because what background work costs a
// request is the wait for a processor, and one request a second has to find one as well as a
// thousand. A node is busy for a second after such a request. What background work itself asks for
// (the locks of large transactions, their heartbeats, pushes, ends and resolutions) does not count.
// A client has a Load too, which the nodes' answers report to it.
//
// # Pacing
//
// Background work is done in pieces, and a Pacer says for how long to pause after each: a multiple
// of what the piece took, so that the work leaves a known part of a processor to others, on fast
// machines and slow ones. Its Class has the figures, the work's Priority bends them:
//
//	class             pause, in pieces   longest   paced by
//	                  idle    busy
//	Resolution        2       8          50 ms     range/replica: ends of locks of large
//	                                            transactions
//	LargeTransaction  none    6          50 ms     txn/committer: requests that take their locks
//	Collection        3       3          none      range/node: garbage collection of one partition,
//	                                            the search for the middle of another
//	Count             1       1          10 ms     range/replica: of what splits off
//	Flush             2       2          10 ms     range/engine: flushes, compactions
//	Export            none    6          none      deploy/embedded/backup: reading a page for a
//	                                            backup or a log, compressing and writing it
//	Import            none    6          none      deploy/embedded/backup: writing a block for a
//	                                            restore
//	Snapshot          1       1          none      rpc: a piece counts for as long as its rate says
//
// Priority Low is the rule. Awaited is for work for which only other background work waits: it
// pauses as if nothing else was asked for. Urgent work does not pause. Work that pauses must not
// pile up: Members bounds for how many owners it does so at a time.
//
// A class whose pauses are taken in turn has one pause at a time, however many goroutines it works
// in: each begins where the one before ends. So it does not matter over how many partitions a
// transaction's locks are spread.
//
// The package knows neither requests nor disks. It imports only the standard library, starts no
// goroutine and has no clock of its own.
package admission
