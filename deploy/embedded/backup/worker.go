package backup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// maxUnits bounds the units that a node writes at the same time; each has a piece in memory.
	maxUnits = 2
	// tellEvery is the shortest time between two reports of progress.
	tellEvery = 500 * time.Millisecond
	// rateBurst is how many bytes a rate lets through at once.
	rateBurst = 4 << 20
)

// WorkerConfig configures a Worker. All fields must be set.
type WorkerConfig struct {
	// Self returns the cluster and the node of this server; zero while they are unknown.
	Self func() (cluster uint64, node keys.NodeID)
	// Sender returns the Sender to the replicas.
	Sender func() (*route.Sender, error)
	// Open opens a target.
	Open   func(ctx context.Context, url string) (target.Target, error)
	Random func() uint64
	// Busy reports whether clients use this server. Backups and restores then slow down.
	Busy func(now time.Time) bool
	// Wall returns this server's clock, in nanoseconds since 1970. It returns 0 while the clock is not
	// trusted.
	Wall   func() uint64
	Logger *slog.Logger
}

// Worker implements backuppb.WorkerServer.
type Worker struct {
	backuppb.UnimplementedWorkerServer
	config WorkerConfig
	// slots has a token for each unit that is being written.
	slots chan struct{}
	// logSlots is the same for rounds of logs, which do not wait for backups.
	logSlots chan struct{}
	// backups, logs and restores limit the rate of reads or writes of each kind. load measures whether
	// clients use the server.
	backups, logs, restores *admission.Pacer
	load                    *admission.Load
	// point has the moment that is being restored.
	point recentPoint

	// mu guards the rates, by backup. No other lock is taken while it is held.
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

// meant refuses calls meant for another server.
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

// pause waits after a piece of work, to leave capacity to clients.
func (w *Worker) pause(p *admission.Pacer) func(context.Context, time.Duration) error {
	return func(ctx context.Context, took time.Duration) error {
		now := time.Now()
		w.load.Report(now, w.config.Busy(now))
		return p.Wait(ctx, now, took, admission.Low)
	}
}

// rate returns the rate of a backup, and a function that releases it.
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

// failure converts an error for the caller. OutOfRange means that the moment was collected,
// NotFound that the node does not know the keyspace, and Aborted that the target is full.
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
