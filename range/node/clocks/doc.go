// Package clocks is the part of a data node that reacts to clocks. Package clockhealth decides what
// is believed of them; the host brings it the peers' pings.
//
// Clock checks with every tick. A node whose clock is not trusted, because it has jumped, is off
// from a majority, or was not compared yet after a start, refuses all requests and gives its
// leaderships away until that is over. FutureReads hold requests with timestamps that the node's
// clock cannot take yet.
//
// INVARIANT: after a jump beyond the maximum offset, no request is answered by a reading of the
// clock that peers have not confirmed, if there are peers.
package clocks
