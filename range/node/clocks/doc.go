// Package clocks is what a data node does about clocks. What is believed of them is in package
// clockhealth; the host brings it the peers' pings.
//
// The Clock looks at it with every tick. A node whose clock is not trusted, because it has jumped,
// is off from a majority, or was not compared yet after a start, refuses all requests and gives its
// leaderships away until that is over. FutureReads hold requests that name timestamps which the
// node's clock cannot take in yet.
//
// INVARIANT: no request is answered by a clock reading from after a jump beyond the maximum offset
// that peers have not confirmed, if there are peers.
package clocks
