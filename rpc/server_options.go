package rpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
)

const (
	// Flow-control windows. Fixed ones, so that gRPC does not probe the bandwidth with pings. A stream's window bounds what its
	// sender can make the receiver hold unread, and is enough for 30 MB/s over 30 ms. The connection's does not couple
	// streams: gRPC reopens it when bytes arrive, not when they are read.
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
	// ioBuffer is the size of the read and write buffer of each connection.
	ioBuffer = 64 << 10
	// maxStreamsPerConnection bounds what one connection can open. A well-behaved client needs a handful; more calls than that wait
	// in the client.
	maxStreamsPerConnection = 256
	maxHeaderBytes          = 64 << 10
	// handshakeTimeout is how long a new connection may take to say something sensible.
	handshakeTimeout = 5 * time.Second
	// keepaliveTime and keepaliveTimeout: a server pings a connection that was silent for the first, and closes it if
	// nothing comes for the second. Clients watch their side themselves (see liveness.go).
	keepaliveTime    = time.Second
	keepaliveTimeout = 2 * time.Second
)

// serverOptions are the options with which every gRPC server is made.
func serverOptions(transport credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(transport),
		grpc.ForceServerCodecV2(Codec{}),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(ioBuffer),
		grpc.WriteBufferSize(ioBuffer),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		// Other clients' pings (a load balancer's, another language's) are welcome once a second.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second / 2, PermitWithoutStream: true}),
		experimental.BufferPool(buffers),
		grpc.WaitForHandlers(true),
	}
}
