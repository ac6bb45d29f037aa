package coreclient

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
)

// forwarding is a connection that sends calls of the service Cluster to the present leader.
type forwarding struct{ client *Client }

// Invoke implements grpc.ClientConnInterface.
func (f forwarding) Invoke(
	ctx context.Context, method string, request, response any, options ...grpc.CallOption,
) error {
	attempts := outcome.Of(request.(proto.Message))
	ctx = outcome.WithID(Forwarded(ctx), f.client.config.Random()|1)
	err := f.client.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		proto.Reset(response.(proto.Message)) // an earlier attempt may have left a part of an answer
		err := conn.Invoke(ctx, method, request, response,
			append(slices.Clone(options), attempts.Option())...)
		attempts.Note(err)
		return err
	})
	return attempts.Error(err)
}

// NewStream implements grpc.ClientConnInterface. It always fails: streams do not use this
// connection, but Client.ListPartitions and Client.Watch.
func (forwarding) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "this stream is not passed on")
}

// withTokens adds a token to creations and drops without one, so that they can be retried.
type withTokens struct {
	clusterpb.ClusterClient
	random func() uint64
}

// CreateKeyspace implements clusterpb.ClusterClient.
func (c withTokens) CreateKeyspace(
	ctx context.Context, r *clusterpb.CreateKeyspaceRequest, options ...grpc.CallOption,
) (*clusterpb.CreateKeyspaceResponse, error) {
	if r.Token == 0 {
		r = proto.Clone(r).(*clusterpb.CreateKeyspaceRequest)
		r.Token = c.random() | 1
	}
	return c.ClusterClient.CreateKeyspace(ctx, r, options...)
}

// DropKeyspace implements clusterpb.ClusterClient.
func (c withTokens) DropKeyspace(
	ctx context.Context, r *clusterpb.DropKeyspaceRequest, options ...grpc.CallOption,
) (*clusterpb.DropKeyspaceResponse, error) {
	if r.Token == 0 {
		r = &clusterpb.DropKeyspaceRequest{Name: r.Name, Token: c.random() | 1}
	}
	return c.ClusterClient.DropKeyspace(ctx, r, options...)
}

// ListPartitions asks the leader, and calls take for each partition.
func (c *Client) ListPartitions(
	ctx context.Context, r *clusterpb.ListPartitionsRequest,
	take func(*clusterpb.PartitionInfo) error,
) error {
	whole, cancel := context.WithCancel(Forwarded(ctx))
	defer cancel()
	return c.call(whole, func(attempt context.Context, conn *grpc.ClientConn) error {
		// The deadline of an attempt applies to the first answer only.
		ctx, cancel := context.WithCancel(whole)
		defer cancel()
		overdue := context.AfterFunc(attempt, cancel)
		defer overdue()
		stream, err := clusterpb.NewClusterClient(conn).ListPartitions(ctx, r)
		if err != nil {
			return err
		}
		for began := false; ; began = true {
			info, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil && began:
				return permanent{err}
			case err != nil:
				return err
			}
			overdue()
			if err := take(info); err != nil {
				return permanent{err}
			}
		}
	})
}
