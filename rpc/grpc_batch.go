package rpc

import (
	"errors"
	"io"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// grpcBatch serves KV.Batch, the data protocol over gRPC, to clients in other languages. It passes
// messages between the stream and a connection within the process, which is served, with all
// limits, like every other connection.
type grpcBatch struct {
	kvpb.UnimplementedKVServer
	clients *BatchServer
}

// refusedKey is in the trailer of a stream whose requests the server has not run: it has read no
// more than the first message.
const refusedKey = "tidemark-refused"

// Batch implements kvpb.KVServer.
func (g *grpcBatch) Batch(stream kvpb.KV_BatchServer) error {
	first, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	served, conn := transport.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.clients.serve(stream.Context(), served, first, originOfCall(stream.Context()))
	}()
	defer func() {
		_ = conn.Close()
		_ = served.Close()
		<-over
	}()
	// The goroutine ends no later than this method's return.
	go passRequests(stream, conn)
	err = passResponses(conn, stream)
	var refused *transport.Refused
	if errors.As(err, &refused) {
		stream.SetTrailer(metadata.Pairs(refusedKey, "1"))
		err = refused.GRPCStatus().Err()
	}
	if ended := stream.Context().Err(); ended != nil {
		return status.FromContextError(ended).Err()
	}
	return err
}

func passRequests(stream kvpb.KV_BatchServer, conn *transport.Conn) {
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			_ = conn.CloseSend()
			return
		}
		var message []byte
		if err == nil {
			message, err = batch.MarshalVT()
		}
		if err == nil {
			err = conn.Send(message)
		}
		if err != nil {
			_ = conn.Close()
			return
		}
	}
}

func passResponses(conn *transport.Conn, stream kvpb.KV_BatchServer) error {
	if err := conn.AwaitAccepted(); err != nil {
		return err
	}
	for {
		message, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		batch := new(kvpb.BatchResponse)
		if err := wire.UnmarshalOwned(message, batch); err != nil {
			return err
		}
		if err := stream.Send(batch); err != nil {
			return err
		}
	}
}
