package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/changelog"
	"github.com/tidemarkdb/tidemark/range/backup/export"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// logPieceBytes is the approximate size of a log's piece in bytes of records. A restore reads the
	// pieces that overlap its span.
	logPieceBytes = 2 << 20
	// piecesInAnswer is the number of pieces that an answer describes.
	piecesInAnswer = 100
	// maxChangesSpans bounds the spans of a request.
	maxChangesSpans = 10_000
)

// WriteChanges implements backuppb.WorkerServer.
func (w *Worker) WriteChanges(r *backuppb.WriteChangesRequest,
	stream backuppb.Worker_WriteChangesServer) error {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return err
	}
	changes, recipients, err := changesOf(r)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ctx := stream.Context()
	select {
	case w.logSlots <- struct{}{}:
		defer func() { <-w.logSlots }()
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
	for i := range changes.Of {
		if _, err := sender.AwaitKeyspace(ctx, changes.Of[i].Query.Keyspace); err != nil {
			return failure(err)
		}
	}
	limiter, done := w.rate(r.GetLog(), r.GetBytesPerSecond())
	defer done()
	told, records, size := time.Now(), uint64(0), uint64(0)
	worker, err := export.NewWorker(export.Config{Source: export.NewSource(sender), Target: store,
		Recipients: recipients, Rate: limiter, PieceBytes: logPieceBytes, Random: w.config.Random,
		Pause: w.pause(w.logs),
		Progress: func(n, bytes uint64) {
			records, size = records+n, size+bytes
			if time.Since(told) < tellEvery {
				return
			}
			// If the caller is gone, the context ends, and the worker sees that.
			_ = stream.Send(&backuppb.WriteChangesAnswer{Records: records, Bytes: size})
			told, records, size = time.Now(), 0, 0
		}})
	if err != nil {
		return failure(err)
	}
	pieces, err := worker.WriteChanges(ctx, changes)
	if err != nil {
		return failure(err)
	}
	for part := range slices.Chunk(pieces, piecesInAnswer) {
		data, err := json.Marshal(part)
		if err != nil {
			return failure(err)
		}
		if err := stream.Send(&backuppb.WriteChangesAnswer{Pieces: data}); err != nil {
			return err
		}
	}
	return stream.Send(&backuppb.WriteChangesAnswer{Records: records, Bytes: size, Over: true})
}

// changesOf decodes a request.
func changesOf(r *backuppb.WriteChangesRequest) (export.Changes, archive.Recipients, error) {
	recipients, err := archive.ParseRecipients(r.GetRecipients()...)
	after, at := wire.FromClusterTimestamp(r.GetAfter()), wire.FromClusterTimestamp(r.GetAt())
	changes := export.Changes{Log: r.GetLog(), Round: after}
	switch {
	case err != nil:
	case manifest.CheckID(r.GetLog()) != "":
		err = errors.New(manifest.CheckID(r.GetLog()))
	case after.IsZero() || !after.Less(at):
		err = fmt.Errorf("there is nothing in the time from %v to %v", after, at)
	case len(r.Spans) > maxChangesSpans:
		err = fmt.Errorf("the request has %d spans, the limit is %d", len(r.Spans), maxChangesSpans)
	}
	if err != nil {
		return changes, nil, err
	}
	// Spans with the same time follow each other, because they share pieces.
	for _, whole := range []bool{true, false} {
		for _, s := range r.Spans {
			q := export.NamedQuery{Name: s.GetKeyspaceName(), Query: export.Query{
				Keyspace: keys.KeyspaceID(s.GetKeyspace()), Hashed: s.GetHashes() > 0,
				Hashes: s.GetHashes(), Span: keys.Span{Start: s.GetStart(), End: s.GetEnd()},
				After: after, At: at, Every: true}}
			switch {
			case q.Span.Empty():
				return changes, nil, fmt.Errorf("there is nothing in %v", q.Span)
			case s.GetHashes() > keys.MaxHashPartitions:
				return changes, nil, fmt.Errorf("there is no hash keyspace of %d partitions", s.GetHashes())
			case whole && !s.GetWhole():
				continue
			case whole:
				q.After, q.At, q.Every = hlc.Timestamp{}, after, false
			}
			changes.Of = append(changes.Of, q)
		}
	}
	return changes, recipients, nil
}

// WriteChanges implements changelog.Cluster.
func (c *cluster) WriteChanges(ctx context.Context, node keys.NodeID,
	task *changelog.Task) ([]manifest.Piece, error) {
	worker, err := c.worker(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &backuppb.WriteChangesRequest{Cluster: c.config.Cluster(), Node: uint64(node),
		Target: c.backup.Target, Log: task.Log, After: ts(task.After), At: ts(task.At),
		Recipients: c.backup.Recipients, BytesPerSecond: c.backup.BytesPerSecond}
	for i := range task.Spans {
		s := &task.Spans[i]
		q.Spans = append(q.Spans, &backuppb.ChangesSpan{Keyspace: s.Keyspace.ID,
			KeyspaceName: s.Keyspace.Name, Hashes: s.Keyspace.Hashes, Start: s.Rows.Start,
			End: s.Rows.End, Whole: s.Keyspace.After.IsZero()})
	}
	stream, err := worker.WriteChanges(ctx, q)
	if err != nil {
		return nil, err
	}
	var all []manifest.Piece
	for {
		answer, err := stream.Recv()
		if err == nil && len(answer.GetPieces()) > 0 {
			var pieces []manifest.Piece
			if err := json.Unmarshal(answer.GetPieces(), &pieces); err != nil {
				return nil, fmt.Errorf("the answer of node %d: %w", node, err)
			}
			all = append(all, pieces...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the node has ended without an answer")
		case status.Code(err) == codes.OutOfRange:
			return nil, fmt.Errorf("%w: %v", job.ErrTooOld, err)
		case status.Code(err) == codes.NotFound:
			for i := range task.Spans {
				gone := c.dropped(ctx, task.Spans[i].Keyspace, err)
				if errors.Is(gone, job.ErrGone) {
					return nil, gone
				}
			}
			return nil, err
		case err != nil:
			return nil, err
		case answer.GetOver():
			return all, nil
		}
	}
}
