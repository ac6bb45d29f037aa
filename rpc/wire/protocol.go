package wire

import "github.com/tidemarkdb/tidemark/rpc/transport"

// A connection of package transport begins with a hello: one byte that says what the connection is
// for, and the identity of the opener. For a client that is an encoded BatchRequest with its Hello;
// for a peer, see package peer.
const (
	HelloClient = 'c'
	HelloPeer   = 'p'
)

const (
	// MaxTokenBytes bounds a token that identifies a user.
	MaxTokenBytes = 4 << 10
	// MaxCallBytes bounds the request of a call on a client's connection. A larger request goes by
	// gRPC.
	MaxCallBytes = 64 << 10
)

// CallsNotMade is the reason with which a server ends the connections of clients when it closes and
// has answered all calls that it has made: a call without an answer was not made. Requests for keys
// (package kv) without an answer may have been done; a client shows them the text, too. The text is
// part of the protocol.
const CallsNotMade = "this server is closing; it has answered all calls of services that it made, " +
	"but perhaps not all requests for keys"

const (
	// ClientSilence is how long the opener of a connection hears nothing on it before it closes it;
	// ServerSilence is the same for the acceptor.
	ClientSilence = 4 * transport.Tick
	ServerSilence = 6 * transport.Tick
)

// Parameters of both ends of a gRPC connection.
const (
	// StreamWindow and the others are flow-control windows. They are fixed, so that gRPC does not
	// probe the bandwidth with pings. A stream's window bounds the unread bytes that its sender can
	// make the receiver hold. For clients it suffices for 30 MB/s over 30 ms. For servers, which
	// have thousands of streams, it is the smallest possible: while a message is being received,
	// its whole length is granted (limit.RecvBudget). The connection's window does not couple
	// streams: gRPC reopens it when bytes arrive, not when they are read.
	StreamWindow      = 1 << 20
	LeastStreamWindow = 64 << 10
	ConnectionWindow  = 16 << 20
	// IOBuffer is the size of the read and write buffer of each connection.
	IOBuffer       = 64 << 10
	MaxHeaderBytes = 64 << 10
)
