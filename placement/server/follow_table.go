package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxFollowed bounds the keyspaces that one stream asks for, those that are gone included.
const maxFollowed = 100_000

// FollowTable implements clusterpb.ClusterServer, from this server's own table.
func (s *ClusterService) FollowTable(stream clusterpb.Cluster_FollowTableServer) error {
	source := s.table()
	if source == nil {
		return status.Error(codes.Unavailable, "this server is starting: it has no partition table yet")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	more := make(chan []uint32)
	// It ends at the latest when gRPC ends Recv, which is when this has returned.
	go func() {
		// A client that has closed its side asks for nothing more, and goes on being told.
		if err := receiveWanted(ctx, stream, more, len(first.Keyspaces)); !errors.Is(err, io.EOF) {
			cancel(err)
		}
	}()
	err = sending(ctx, s.cut.Inc, stream.Send,
		func(ctx context.Context, send func(*clusterpb.TableUpdate) error) error {
			if err := s.sendClockOffset(send); err != nil {
				return err
			}
			return source.SubscribeTo(ctx, first.Keyspaces, more, s.config.SmallTable,
				func(u *clusterpb.TableUpdate) error { return sendPieces(u, send) })
		})
	if cause := context.Cause(ctx); cause != nil && stream.Context().Err() == nil {
		return cause
	}
	return err
}

// receiveWanted hands on which keyspaces the client asks for, until the stream ends.
func receiveWanted(ctx context.Context, stream clusterpb.Cluster_FollowTableServer,
	more chan<- []uint32, asked int) error {
	for {
		if asked > maxFollowed {
			return status.Errorf(codes.ResourceExhausted,
				"the stream has asked for more than %d keyspaces; open another one", maxFollowed)
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		asked += len(r.Keyspaces)
		select {
		case more <- r.Keyspaces:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
