package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxFollowed limits the number of keyspaces that one stream asks for, including dropped keyspaces.
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
	follower := &tableFollower{stream: stream, viewer: s.viewer(stream.Context()),
		more: make(chan []uint32), asked: slices.Clone(first.Keyspaces)}
	if err := follower.viewer.Show(first.Token); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	// This goroutine ends when gRPC ends Recv, at the latest after this method has returned.
	go func() {
		// A client that has closed its side asks for nothing more, but still receives updates.
		if err := follower.receive(ctx); !errors.Is(err, io.EOF) {
			cancel(err)
		}
	}()
	err = table.SendTo(ctx, s.cut.Inc, stream.Send,
		func(ctx context.Context, send func(*clusterpb.TableUpdate) error) error {
			if err := s.sendClockOffset(send); err != nil {
				return err
			}
			return follower.viewer.Follow(ctx, func(ctx context.Context, emit veil.Emit) error {
				return source.SubscribeTo(ctx, follower.wanted(), follower.more, s.config.SmallTable, emit)
			}, func(u *clusterpb.TableUpdate) error { return sendPieces(u, send) })
		})
	if cause := context.Cause(ctx); cause != nil && stream.Context().Err() == nil {
		return cause
	}
	return err
}

// viewer returns the viewer of a call, which says which bounds of partitions the caller may see.
func (s *ClusterService) viewer(ctx context.Context) *veil.Viewer {
	if s.config.Viewer == nil {
		return nil
	}
	return s.config.Viewer(ctx)
}

// tableFollower is the state of one client's stream.
type tableFollower struct {
	stream clusterpb.Cluster_FollowTableServer
	viewer *veil.Viewer
	// more carries keyspaces that the client asks for later.
	more chan []uint32

	mu sync.Mutex
	// asked are all keyspaces that the client has asked for; guarded by mu.
	asked []uint32
}

// wanted returns the keyspaces that the client has asked for so far.
func (f *tableFollower) wanted() []uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// add records keyspaces that the client asks for. It fails if the client asks for more than
// maxFollowed.
func (f *tableFollower) add(keyspaces []uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked)+len(keyspaces) > maxFollowed {
		return status.Errorf(codes.ResourceExhausted,
			"the stream has asked for more than %d keyspaces; open another one", maxFollowed)
	}
	f.asked = append(f.asked, keyspaces...)
	return nil
}

// receive reads the client's messages until the stream ends: requests for keyspaces, and new
// tokens.
func (f *tableFollower) receive(ctx context.Context) error {
	for {
		r, err := f.stream.Recv()
		if err != nil {
			return err
		}
		if err := f.viewer.Show(r.Token); err != nil {
			return err
		}
		if len(r.Keyspaces) == 0 {
			continue
		}
		if err := f.add(r.Keyspaces); err != nil {
			return err
		}
		select {
		case f.more <- r.Keyspaces:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
