package wire

import "github.com/tidemarkdb/tidemark/rpc/transport"

// A connection of package transport begins with a hello: one byte that says what the connection is
// for, and then the identity of the opener. For a client that is an encoded BatchRequest which
// holds its Hello; for a peer, see package peer.
const (
	HelloClient = 'c'
	HelloPeer   = 'p'
)

const (
	// MaxTokenBytes bounds a token that identifies a user.
	MaxTokenBytes = 4 << 10
	// MaxCallBytes bounds the request of a call on a client's connection. A larger one is for gRPC.
	MaxCallBytes = 64 << 10
)

const (
	// ClientSilence is how long the side that has opened a connection hears nothing on it before it
	// breaks it, ServerSilence the side that has accepted it.
	ClientSilence = 4 * transport.Tick
	ServerSilence = 6 * transport.Tick
)

// What both ends of a gRPC connection are made with.
const (
	// Flow-control windows. Fixed ones, so that gRPC does not probe the bandwidth with pings. A
	// stream's window bounds what its sender can make the receiver hold unread. Of clients it is
	// enough for 30 MB/s over 30 ms. Of servers, which have thousands of streams, it is the smallest
	// that there can be: what is being received is granted all of its message (limit.RecvBudget). The
	// connection's does not couple streams: gRPC reopens it when bytes arrive, not when they are
	// read.
	StreamWindow      = 1 << 20
	LeastStreamWindow = 64 << 10
	ConnectionWindow  = 16 << 20
	// IOBuffer is the size of the read and write buffer of each connection.
	IOBuffer       = 64 << 10
	MaxHeaderBytes = 64 << 10
)
