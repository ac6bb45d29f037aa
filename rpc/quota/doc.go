// Package quota shares a server's resources (places, bytes and processor time) among principals:
// hosts, or the holders of certificates. No principal can take so much that another one gets
// nothing.
//
// # Shares
//
// A principal may hold as much as is left free: one alone gets half of all, two that want
// everything get a third each, n get 1/(n+1) each (dynamic thresholds with factor 1: Choudhury and
// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). A principal
// that comes later finds room at once. A small amount is granted to each in any case.
//
// # Places
//
// A connection or a stream is a place. A principal that wants more than its share gets it, and
// loses another one of its own, drawn at random. So a program that opens thousands of connections
// takes them from itself, and not from others on the same host: of a host's connections, nearly all
// that are drawn are those of the program that has nearly all.
//
// A place is not lost before it was held for a while; if all drawn ones are younger, the newcomer
// is refused. Otherwise a host with a few more honest clients than its share would have them
// displace each other as fast as they can connect.
//
// # Bytes
//
// Bytes are refused, not taken from others: the caller has to try again later.
//
// # Processor time
//
// See [CPULimiter].
//
// The package imports nothing of Tidemark but range/invariants, and golang.org/x/time/rate.
package quota
