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
	// snapshotChunk is how much of a snapshot one message has.
	snapshotChunk = 32 << 10
	// maxSnapshots is how many snapshots are on their way to clients at a time, each with its file.
	maxSnapshots = 4
)

var errStalled = errors.New("the client reads nothing")

// snapshots bounds what snapshots take.
type snapshots struct {
	// sending has room for those whose files exist or will, writing for the one that is written.
	sending, writing chan struct{}
	// running are the goroutines that send. Each ends with its call, and its file with it.
	running sync.WaitGroup
}

// Snapshot implements etcdserverpb.MaintenanceServer: what this member has, as a database file of
// etcd, and its SHA-256. A client that reads nothing for Config.StallTimeout loses its stream, and
// one that comes while maxSnapshots are sent is refused.
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
	// Send waits for the client, and ends only with the call: so this returns when the client stalls,
	// and the goroutine that sends soon after.
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
		<-s.snapshots.sending // before the call ends: its client may ask for another one at once
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
		// A message may be read after Send has returned, so that each has its own bytes.
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
