package watches

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// Store is what the service needs of the store.
type Store interface {
	backend.Watches
	backend.Leader
}

// MinProgressInterval is the shortest that Config.ProgressInterval can be, as in etcd.
const MinProgressInterval = 100 * time.Millisecond

// Config configures the Watch service. Store, Cluster and Random must be set.
type Config struct {
	Store   Store
	Cluster backend.Identity
	// Random is the source of a jitter of progress intervals, so that streams that begin together
	// do not notify together.
	Random io.Reader

	// ProgressInterval is the interval of progress notifications to a watch that wants them and
	// gets no events. Default 10 min, as in etcd; at least MinProgressInterval.
	ProgressInterval time.Duration
	// StallTimeout is how long a client may read nothing before its stream is ended. Default 5 min.
	StallTimeout time.Duration
	// ResponseBytes is the approximate size of a response that has more than one revision, or whose
	// client accepts fragments. Default 2 MiB, as in etcd.
	ResponseBytes int
	// MaxRevisionBytes bounds the events of one revision for one watch; a watch that would need
	// more is cancelled. Default 256 MiB.
	MaxRevisionBytes int

	// Logger gets the streams that were ended because their clients read nothing. Default: nothing
	// is logged.
	Logger *slog.Logger
}

func (c *Config) ensureDefaults() error {
	if c.Store == nil || c.Cluster == nil || c.Random == nil {
		return errors.New("etcd Watch API: Store, Cluster and Random must be set")
	}
	if c.ProgressInterval <= 0 {
		c.ProgressInterval = 10 * time.Minute
	}
	c.ProgressInterval = max(c.ProgressInterval, MinProgressInterval)
	if c.StallTimeout <= 0 {
		c.StallTimeout = 5 * time.Minute
	}
	if c.ResponseBytes <= 0 {
		c.ResponseBytes = 2 << 20
	}
	if c.MaxRevisionBytes <= 0 {
		c.MaxRevisionBytes = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Server is the Watch service. It implements etcdserverpb.WatchServer.
type Server struct {
	pb.UnimplementedWatchServer
	config Config
	// running counts the goroutines of streams. They end with the calls.
	running sync.WaitGroup
}

var _ pb.WatchServer = (*Server)(nil)

// New makes the service.
func New(config Config) (*Server, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	return &Server{config: config}, nil
}

// Wait returns when all goroutines of the service have ended, which they do soon after the gRPC
// server was stopped.
func (w *Server) Wait() { w.running.Wait() }

type watchRPC = grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]

// Watch implements etcdserverpb.WatchServer. One goroutine receives, and another one sends; both
// end at the latest when Watch returns, because gRPC then ends the stream.
func (w *Server) Watch(rpc watchRPC) error {
	events, err := w.config.Store.NewWatchStream()
	if err != nil {
		return watchError(err)
	}
	defer events.Close()
	ctx, cancel := context.WithCancelCause(rpc.Context())
	defer cancel(nil)
	requests := newRequests()
	ended := make(chan error, 2)
	w.running.Go(func() {
		if err := receiveAll(ctx, rpc, requests); err != nil {
			ended <- err
		}
	})
	w.running.Go(func() {
		stalled := func() { cancel(errStalled) }
		ended <- newSender(w, rpc, events, requests, stalled).run(ctx)
	})
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled:
		return rpctypes.ErrGRPCWatchCanceled
	case errors.Is(err, errStalled):
		client := "unknown"
		if p, ok := peer.FromContext(rpc.Context()); ok {
			client = p.Addr.String()
		}
		w.config.Logger.Warn("a stream of watches was ended, because its client reads nothing",
			"client", client, "timeout", w.config.StallTimeout)
		return status.Errorf(codes.Unavailable, "etcdserver: the client has read nothing for %v; "+
			"watch on from behind the last revision that it received", w.config.StallTimeout)
	}
	return watchError(err)
}

var errStalled = errors.New("the client reads nothing")

func watchError(err error) error {
	if errors.Is(err, store.ErrClosed) {
		return rpctypes.ErrGRPCStopped
	}
	return err
}

// receiveAll passes requests on until the stream ends. A client that sends no more requests can
// still watch.
func receiveAll(ctx context.Context, rpc watchRPC, requests *requests) error {
	for {
		request, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !requests.put(ctx, request) {
			return nil
		}
	}
}

// progressInterval returns the interval of one stream.
func (w *Server) progressInterval() (time.Duration, error) {
	var random [8]byte
	if _, err := io.ReadFull(w.config.Random, random[:]); err != nil {
		return 0, fmt.Errorf("etcdserver: random source: %w", err)
	}
	interval := w.config.ProgressInterval
	later := binary.BigEndian.Uint64(random[:]) % uint64(interval/10)
	return interval + time.Duration(later), nil
}

// header returns a response's header; revision 0: none.
func (w *Server) header(revision uint64) *pb.ResponseHeader {
	return backend.Fill(&pb.ResponseHeader{Revision: int64(revision)}, w.config.Store,
		w.config.Cluster)
}
