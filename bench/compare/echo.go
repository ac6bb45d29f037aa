package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

const (
	echoMethod = "/bench.compare.Echo/Echo"
	// echoCallersPerConnection gives 256 callers 8 connections, as many as the etcd client has.
	echoCallersPerConnection = 32
)

// echoService is written by hand. It has one unary method that returns the bytes of the request.
var echoService = grpc.ServiceDesc{
	ServiceName: "bench.compare.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			message := new(wrapperspb.BytesValue)
			if err := decode(message); err != nil {
				return nil, err
			}
			return message, nil
		},
	}},
}

// serveEcho runs the echo's server. It ends when the process is killed.
func serveEcho(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("echo server: %w", err)
	}
	server := grpc.NewServer()
	server.RegisterService(&echoService, nil)
	return server.Serve(listener)
}

// measureEcho measures the cost of a request to another process over TCP and gRPC with an answer of
// the same size. No store with unary gRPC can be faster.
func measureEcho(
	ctx context.Context, log string, callers int, each time.Duration, size int,
) (_ limit, err error) {
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return limit{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return limit{}, err
	}
	server, err := process.Start(process.Config{Name: "echo server", Path: self,
		Args: []string{"-serve-echo", addresses[0]}, Log: log})
	if err != nil {
		return limit{}, err
	}
	defer func() { err = errors.Join(err, server.Kill()) }()
	var connections []*grpc.ClientConn
	for range max(callers/echoCallersPerConnection, 1) {
		connection, err := grpc.NewClient("passthrough:///"+addresses[0],
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return limit{}, err
		}
		defer connection.Close()
		connections = append(connections, connection)
	}
	payload := make([]byte, size)
	echo := func(ctx context.Context, caller int) error {
		response := new(wrapperspb.BytesValue)
		return connections[caller%len(connections)].Invoke(ctx, echoMethod,
			wrapperspb.Bytes(payload), response)
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for caller := range connections {
		if err := process.Until(ready, "echo server answers", 10*time.Millisecond,
			func(ctx context.Context) error { return echo(ctx, caller) }, server); err != nil {
			return limit{}, err
		}
	}
	return closedLoop(ctx, "gRPC unary echo", server.PID(), callers, each, echo)
}
