// Package delays measures two delays of a host from traffic and ticks that exist anyway. A Ticks
// measures how late the host's ticks are, which is how long its process waits for a processor. A
// RoundTrip measures how long a message takes to a peer and back, from the pings that hosts
// exchange.
//
// Both give the median of some seconds: a single late tick or message changes nothing, and a
// lasting delay shows within ten seconds. Neither has a lock; the caller holds one.
package delays
