package etcdapi

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
)

// snapshotChunk is how much of a snapshot one message has.
const snapshotChunk = 32 << 10

// Snapshot implements etcdserverpb.MaintenanceServer: what this member has, as a database file of
// etcd, and its SHA-256.
func (s *maintenanceServer) Snapshot(
	_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer,
) (err error) {
	ctx := stream.Context()
	if _, err := s.administer(ctx); err != nil {
		return err
	}
	select {
	case s.snapshots <- struct{}{}:
		defer func() { <-s.snapshots }()
	case <-ctx.Done():
		return s.toGRPC(ctx, ctx.Err())
	}
	path, err := s.writeSnapshot(stream)
	if err != nil {
		return s.toGRPC(ctx, err)
	}
	defer func() { err = errors.Join(err, etcdfile.Remove(path)) }()
	file, err := os.Open(path)
	if err != nil {
		return s.toGRPC(ctx, err)
	}
	defer file.Close()
	return s.toGRPC(ctx, sendSnapshot(file, stream))
}

func (s *maintenanceServer) writeSnapshot(stream pb.Maintenance_SnapshotServer) (string, error) {
	e, err := s.Store.Export()
	if err != nil {
		return "", err
	}
	defer e.Close()
	return etcdfile.Write(stream.Context(), s.TemporaryDirectory, e)
}

func sendSnapshot(file *os.File, stream pb.Maintenance_SnapshotServer) error {
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
		if err := stream.Send(&pb.SnapshotResponse{RemainingBytes: uint64(left), Blob: chunk,
			Version: etcdfile.StorageVersion}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.SnapshotResponse{Blob: sum.Sum(nil), Version: etcdfile.StorageVersion})
}
