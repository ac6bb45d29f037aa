package etcdapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

const (
	// snapshotChunk is the size of the part of a snapshot in one message.
	snapshotChunk = 32 << 10
	// maxSnapshots bounds the snapshots that are sent at a time, each from a file.
	maxSnapshots = 4
)

var errStalled = errors.New("the client reads nothing")

// snapshots bounds the resources of snapshots.
type snapshots struct {
	// sending has a token for each snapshot that has a file or will have one, writing for the one
	// that is being written.
	sending, writing chan struct{}
	// running counts the goroutines that send. Each ends with its call, and removes its file.
	running sync.WaitGroup
}

// Snapshot implements etcdserverpb.MaintenanceServer: it sends this member's state as a database
// file of etcd, and its SHA-256. It ends the stream of a client that reads nothing for
// Config.StallTimeout, and refuses calls while maxSnapshots are being sent.
func (s *maintenanceServer) Snapshot(
	_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer,
) error {
	ctx := stream.Context()
	if _, err := s.Administer(ctx); err != nil {
		return err
	}
	select {
	case s.snapshots.sending <- struct{}{}:
	default:
		return status.Errorf(codes.ResourceExhausted,
			"etcdserver: %d snapshots are being sent, and no more may be: try again when one has ended",
			maxSnapshots)
	}
	path, err := s.writeSnapshot(stream)
	if err != nil {
		<-s.snapshots.sending
		return translate.Error(ctx, err)
	}
	// Send waits for the client, and returns only when the call ends: so Snapshot returns when the
	// client stalls, and the sending goroutine ends soon after.
	stalled, stall := context.WithCancel(context.Background())
	defer stall()
	ended := make(chan error, 1)
	s.snapshots.running.Go(func() {
		timer := time.AfterFunc(s.StallTimeout, stall)
		defer timer.Stop()
		err := sendSnapshot(path, func(r *pb.SnapshotResponse) error {
			err := stream.Send(r)
			if err == nil && !timer.Stop() {
				return errStalled
			}
			timer.Reset(s.StallTimeout)
			return err
		})
		err = errors.Join(err, etcdfile.Remove(path))
		<-s.snapshots.sending // first: the client may ask for another one at once
		ended <- err
	})
	select {
	case err := <-ended:
		return s.snapshotError(ctx, err)
	case <-stalled.Done():
		return s.snapshotError(ctx, errStalled)
	case <-ctx.Done():
		return translate.Error(ctx, context.Cause(ctx))
	}
}

func (s *maintenanceServer) snapshotError(ctx context.Context, err error) error {
	if !errors.Is(err, errStalled) {
		return translate.Error(ctx, err)
	}
	client := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		client = p.Addr.String()
	}
	s.Logger.Warn("a snapshot was given up, because its client reads nothing", "client", client,
		"timeout", s.StallTimeout)
	return status.Errorf(codes.Unavailable, "etcdserver: the client has read nothing of its "+
		"snapshot for %v; ask for another", s.StallTimeout)
}

// writeSnapshot writes the file when its turn comes.
func (s *maintenanceServer) writeSnapshot(stream pb.Maintenance_SnapshotServer) (string, error) {
	select {
	case s.snapshots.writing <- struct{}{}:
		defer func() { <-s.snapshots.writing }()
	case <-stream.Context().Done():
		return "", stream.Context().Err()
	}
	e, err := s.Store.Export()
	if err != nil {
		return "", err
	}
	defer e.Close()
	return etcdfile.Write(stream.Context(), s.TemporaryDirectory, e)
}

func sendSnapshot(path string, send func(*pb.SnapshotResponse) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	for left := info.Size(); left > 0; {
		// gRPC may read a message after Send has returned, so each message has bytes of its own.
		chunk := make([]byte, min(left, snapshotChunk))
		if _, err := io.ReadFull(file, chunk); err != nil {
			return err
		}
		left -= int64(len(chunk))
		sum.Write(chunk)
		if err := send(&pb.SnapshotResponse{RemainingBytes: uint64(left), Blob: chunk,
			Version: etcdfile.StorageVersion}); err != nil {
			return err
		}
	}
	return send(&pb.SnapshotResponse{Blob: sum.Sum(nil), Version: etcdfile.StorageVersion})
}
