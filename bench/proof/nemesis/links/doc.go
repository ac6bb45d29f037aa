// Package links gives the servers of a test cluster, which are separate processes on one machine,
// links that can be cut, slowed down and healed one by one, each direction on its own.
//
// A Host is a server, or Clients: the process that drives the test. A link goes from one host to
// another. There are two kinds of Network:
//
//   - Namespaces: every server has a network namespace of its own, on a bridge that the clients
//     reach too. A link that is not as it should be is routed into a TUN device of its host; what
//     comes out there is dropped, or put into the TUN device of the receiver after a while. Links
//     without a fault go through the kernel alone. TCP itself sees the fault: packets get lost, and
//     retransmission, backoff and half-open connections are the real ones. Needs root.
//   - Proxies: all servers are on loopback, each behind a TCP proxy whose address is the one it
//     advertises. The proxy finds out which server connects by the owner of the connecting socket
//     (Linux), so that links between two servers can be told apart. A fault delays or holds back
//     bytes; packets are never lost. Needs nothing.
//
// INVARIANT: what a Network makes on the machine (namespaces, devices, routes) bears the name
// prefix "tmnem", so that RemoveLeftovers finds what a run left behind that could not clean up, and
// touches nothing else.
package links
