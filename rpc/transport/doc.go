// Package transport carries the frequent traffic between Tidemark's processes: the batches of
// clients, and the Raft messages of peers, with and without TLS.
//
// # The connection
//
// A [Conn] is a TCP connection that shares its listener with gRPC. Without TLS it begins with a
// preface that is not HTTP/2's; with TLS it asks for the application protocol [Protocol]. The
// listener's handshake is the same for both protocols, with the same certificates and the same
// checks ([Accept]). Then both sides send frames: four bytes of length (little endian), and a
// message. The highest bit of the length marks a control frame:
//
//	opener                               acceptor
//	preface, hello: identity, purpose    →
//	                                     ←  accepted; or refused, with a reason
//	messages                             →
//	                                     ←  messages
//	                                     ←  ended, with a reason
//	keepalive, when there is nothing else, in both directions
//
// The goroutine that reads the socket handles the message, and the goroutine that has a message
// writes it to the socket, as far as there is room in the socket. So it is with TLS: the records
// are gathered, and written as plain bytes would be (tls_buffer.go). The buffer of a message of
// more than 64 KiB comes from a pool and returns to it when the message is written (buffers.go).
//
// # Why not a library
//
// gRPC hands each message from goroutine to goroutine on both sides. DRPC does so on the receiving
// side, and its send blocks while the other side does not read. Echoes of a batch of requests
// between two processes on two cores, 256 bytes each, median of five runs in turns:
//
//	µs per echo        1 caller       64 callers     256 callers
//	                   plain   TLS    plain   TLS    plain   TLS
//	this package          41    48      5.2   5.8      4.2   4.6
//	DRPC 1.0              46    52      5.8   5.8      4.3   5.8
//	gRPC streams          52    63      5.4   5.8      4.1   4.8
//
// Processor time of both sides for one caller: 36, 48 and 55 µs plain, 42, 50 and 59 µs with TLS.
//
// # Liveness
//
// A connection whose other side has vanished is closed after some two seconds of silence
// (watch.go). Each side sends a keepalive when it has sent nothing for half a second.
//
// # What unauthenticated openers can do
//
// The preface and the hello are bounded in bytes, and in time by the listener. Memory for a message
// is allocated only as its bytes arrive, whatever its length field says. TLS verifies both sides
// before the hello is read; the identity that the other side claims is for the owner of the
// connection to check.
//
// # Invariants
//
//   - One goroutine at a time sends, and one at a time receives.
//   - A message is written whole, or the connection is closed.
//   - No message is received on a connection that is refused.
//   - Nothing of a connection runs after Close, but for a call of idle (Watch) that has begun.
//
// The package imports no protocol buffers, and nothing else of Tidemark.
package transport
