package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/export"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// maxUnits is how many units a node writes at the same time; each has a piece in memory.
	maxUnits = 2
	// tellEvery is how often progress is told at most.
	tellEvery = 500 * time.Millisecond
	// maxCheck bounds the content that CheckTarget compares.
	maxCheck = 64 << 10
	// rateBurst is how much a rate lets through at once.
	rateBurst = 4 << 20
)

// WorkerConfig is what a Worker is made of. All fields must be set.
type WorkerConfig struct {
	// Self is the cluster and the node of this server; zero while they are not known.
	Self func() (cluster uint64, node keys.NodeID)
	// Sender is the way to the replicas.
	Sender func() (*route.Sender, error)
	// Open opens a target.
	Open   func(ctx context.Context, url string) (target.Target, error)
	Random func() uint64
	// Busy reports that clients ask this server for something: backups and restores make way then.
	Busy func(now time.Time) bool
	// Wall is what this server's clock shows, in nanoseconds since 1970; 0 while it is not trusted.
	Wall   func() uint64
	Logger *slog.Logger
}

// Worker implements backuppb.WorkerServer.
type Worker struct {
	backuppb.UnimplementedWorkerServer
	config WorkerConfig
	// slots has room for the units that are being written.
	slots chan struct{}
	// logSlots is the same for rounds of logs, which do not wait for backups.
	logSlots chan struct{}
	// backups, logs and restores pace what is read or written for each; load says whether the
	// foreground is busy.
	backups, logs, restores *admission.Pacer
	load                    *admission.Load
	// point is the moment that is being restored.
	point recentPoint

	// mu guards the rates, by backup. It is a leaf.
	mu    sync.Mutex
	rates map[string]*sharedRate
}

// sharedRate is the rate of a backup on this node.
type sharedRate struct {
	limiter *rate.Limiter
	users   int
}

// NewWorker makes a Worker.
func NewWorker(config WorkerConfig) *Worker {
	load := admission.NewLoad(time.Now())
	return &Worker{config: config, load: load, backups: admission.NewPacer(admission.Export, load),
		logs:     admission.NewPacer(admission.Export, load),
		restores: admission.NewPacer(admission.Import, load), slots: make(chan struct{}, maxUnits),
		logSlots: make(chan struct{}, maxUnits), rates: make(map[string]*sharedRate)}
}

// meant refuses calls for another server.
func (w *Worker) meant(cluster, node uint64) error {
	c, n := w.config.Self()
	switch {
	case c == 0 || n == 0:
		return status.Error(codes.FailedPrecondition, "this server is no data node at present")
	case c != cluster || uint64(n) != node:
		return status.Errorf(codes.FailedPrecondition, "this server is node %d of the cluster %016x, "+
			"and not node %d of the cluster %016x", n, c, node, cluster)
	}
	return nil
}

// CheckTarget implements backuppb.WorkerServer.
func (w *Worker) CheckTarget(
	ctx context.Context, r *backuppb.CheckTargetRequest,
) (*backuppb.CheckTargetResponse, error) {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return nil, err
	}
	if len(r.GetContent()) > maxCheck {
		return nil, status.Error(codes.InvalidArgument, "the content is too large")
	}
	store, err := w.config.Open(ctx, r.GetTarget())
	if err != nil {
		return nil, failure(err)
	}
	defer store.Close()
	content, err := store.Get(ctx, r.GetObject())
	if errors.Is(err, target.ErrNotFound) || err == nil && string(content) != string(r.GetContent()) {
		return nil, status.Errorf(codes.FailedPrecondition, "node %d does not see in %s what another "+
			"server has just written: the servers must share the directory or bucket", r.Node, store)
	}
	return &backuppb.CheckTargetResponse{}, failure(err)
}

// pause makes way for clients after a piece of work that took so long.
func (w *Worker) pause(p *admission.Pacer) func(context.Context, time.Duration) error {
	return func(ctx context.Context, took time.Duration) error {
		now := time.Now()
		w.load.Report(now, w.config.Busy(now))
		return p.Wait(ctx, now, took, admission.Low)
	}
}

// failure is an error for the caller. OutOfRange says that the moment was collected, NotFound that
// the node knows no such keyspace, and Aborted that the target is full.
func failure(err error) error {
	var read *route.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &read) && read.Code == kvpb.ErrorCode_TIMESTAMP_TOO_OLD:
		return status.Error(codes.OutOfRange, err.Error())
	case errors.As(err, &read) && errors.Is(read.Cause, route.ErrNoKeyspace):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, target.ErrInvalid), errors.Is(err, archive.ErrInvalid),
		errors.Is(err, archive.ErrCorrupt), errors.Is(err, archive.ErrNoIdentity),
		errors.Is(err, archive.ErrNewer), errors.Is(err, manifest.ErrNewer),
		errors.Is(err, manifest.ErrBroken), errors.Is(err, target.ErrNotFound):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, target.ErrFull):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, target.ErrRefused):
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

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
			// A caller that is gone ends the context, which the worker sees.
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

// unitOf reads a request.
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

// rate is the rate of a backup, and the function that gives it back.
func (w *Worker) rate(backup string, limit uint64) (*rate.Limiter, func()) {
	if limit == 0 {
		return nil, func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	shared := w.rates[backup]
	if shared == nil {
		shared = &sharedRate{limiter: rate.NewLimiter(rate.Limit(limit), rateBurst)}
		w.rates[backup] = shared
	}
	shared.users++
	return shared.limiter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if shared.users--; shared.users == 0 {
			delete(w.rates, backup)
		}
	}
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

// ts is a timestamp as messages have it; nil if it is unset.
func ts(t hlc.Timestamp) *timestamp {
	if t.IsZero() {
		return nil
	}
	return wire.ToClusterTimestamp(t)
}
