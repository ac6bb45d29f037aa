package rpc

import (
	"crypto/tls"

	"google.golang.org/grpc"
)

// ServerConfig configures a gRPC server.
type ServerConfig struct {
	// TLS is nil for plain text.
	TLS *tls.Config
}

// ServerOptions gives the options every Tidemark gRPC server is made with.
func ServerOptions(c ServerConfig) []grpc.ServerOption { panic("not yet") }
