package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/export"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Export implements backuppb.WorkerServer.
func (w *Worker) Export(r *backuppb.ExportRequest, stream backuppb.Worker_ExportServer) error {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return err
	}
	unit, recipients, err := unitOf(r)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ctx := stream.Context()
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	store, err := w.config.Open(ctx, r.GetTarget())
	if err != nil {
		return failure(err)
	}
	defer store.Close()
	sender, err := w.config.Sender()
	if err != nil {
		return failure(err)
	}
	if _, err := sender.AwaitKeyspace(ctx, unit.Query.Keyspace); err != nil {
		return failure(err)
	}
	limiter, done := w.rate(r.GetBackup(), r.GetBytesPerSecond())
	defer done()
	told, records, size := time.Now(), uint64(0), uint64(0)
	worker, err := export.NewWorker(export.Config{Source: export.NewSource(sender), Target: store,
		Recipients: recipients, Rate: limiter, Random: w.config.Random, Pause: w.pause(w.backups),
		Progress: func(n, bytes uint64) {
			records, size = records+n, size+bytes
			if time.Since(told) < tellEvery {
				return
			}
			// If the caller is gone, the context ends, which the worker notices.
			_ = stream.Send(&backuppb.ExportAnswer{Records: records, Bytes: size})
			told, records, size = time.Now(), 0, 0
		}})
	if err != nil {
		return failure(err)
	}
	written, err := worker.Write(ctx, unit)
	if err != nil {
		w.config.Logger.Warn("a unit of a backup was not written", "backup", unit.Backup, "unit",
			unit.Number, "keyspace", unit.Keyspace, "error", err)
		return failure(err)
	}
	data, err := manifest.Encode(written)
	if err != nil {
		return failure(err)
	}
	return stream.Send(&backuppb.ExportAnswer{Records: records, Bytes: size, Done: data})
}

// unitOf decodes a request.
func unitOf(r *backuppb.ExportRequest) (export.Unit, archive.Recipients, error) {
	recipients, err := archive.ParseRecipients(r.GetRecipients()...)
	at := wire.FromClusterTimestamp(r.GetAt())
	after := wire.FromClusterTimestamp(r.GetAfter())
	span := keys.Span{Start: r.GetStart(), End: r.GetEnd()}
	kind := manifest.Kind(r.GetKind())
	switch {
	case err != nil:
	case manifest.CheckID(r.GetBackup()) != "":
		err = errors.New(manifest.CheckID(r.GetBackup()))
	case kind != manifest.Full && kind != manifest.Incremental:
		err = fmt.Errorf("there is no kind %q of backups", r.GetKind())
	case at.IsZero() || !after.Less(at):
		err = fmt.Errorf("there is nothing in the time from %v to %v", after, at)
	case span.Empty():
		err = fmt.Errorf("there is nothing in %v", span)
	case r.GetHashes() > keys.MaxHashPartitions:
		err = fmt.Errorf("there is no hash keyspace of %d partitions", r.GetHashes())
	case r.GetUnit() >= manifest.MaxUnits:
		err = fmt.Errorf("there is no unit %d", r.GetUnit())
	}
	if err != nil {
		return export.Unit{}, nil, err
	}
	return export.Unit{Backup: r.Backup, Kind: kind, Number: int(r.GetUnit()),
			Keyspace: r.GetKeyspaceName(), Query: export.Query{Keyspace: keys.KeyspaceID(r.GetKeyspace()),
				Hashed: r.GetHashes() > 0, Hashes: r.GetHashes(), Span: span, After: after, At: at}},
		recipients, nil
}

// Export implements job.Cluster.
func (c *cluster) Export(ctx context.Context, node keys.NodeID,
	task *job.Task) (*manifest.Done, error) {
	worker, err := c.worker(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := worker.Export(ctx, &backuppb.ExportRequest{Cluster: c.config.Cluster(),
		Node: uint64(node), Backup: task.Plan.ID, Kind: string(task.Plan.Kind),
		Unit: uint32(task.Number), Keyspace: task.Keyspace.ID, KeyspaceName: task.Keyspace.Name,
		Hashes: task.Keyspace.Hashes, Start: task.Unit.Start, End: task.Unit.End,
		After: ts(task.Keyspace.After.Timestamp), At: ts(task.Plan.At.Timestamp),
		Target: c.backup.Target, Recipients: c.backup.Recipients,
		BytesPerSecond: c.backup.BytesPerSecond})
	if err != nil {
		return nil, err
	}
	done, err := receive(stream, func(uint64, uint64) {})
	switch status.Code(err) {
	case codes.OutOfRange:
		return nil, tooOld(task.Keyspace, err)
	case codes.NotFound:
		return nil, c.dropped(ctx, task.Keyspace, err)
	}
	return done, ofNode(err)
}

// receive reads the answers to an Export up to the last one.
func receive(stream backuppb.Worker_ExportClient,
	progress func(records, bytes uint64)) (*manifest.Done, error) {
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the node has ended without an answer")
		}
		if err != nil {
			return nil, err
		}
		progress(answer.GetRecords(), answer.GetBytes())
		if len(answer.GetDone()) > 0 {
			return manifest.DecodeDone(answer.Done)
		}
	}
}

// tooOld adds advice to the error that history was collected before it was read.
func tooOld(ks *manifest.Keyspace, err error) error {
	if ks.After.IsZero() {
		return fmt.Errorf("%w: keyspace %q: the backup has taken longer than its history was kept "+
			"(--keep-history): %v", job.ErrTooOld, ks.Name, err)
	}
	return fmt.Errorf("%w: keyspace %q: what was deleted since the backup before is not known any "+
		"more. Make a full backup, and give the keyspace a longer --gc-window than the time between two "+
		"backups: %v", job.ErrTooOld, ks.Name, err)
}
