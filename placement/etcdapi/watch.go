package etcdapi

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

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// WatchStore is what the Watch service needs of the store; *store.Store has it.
type WatchStore interface {
	NewWatchStream() (*watch.Stream, error)
	Leadership() (store.Leadership, <-chan struct{})
}

// WatchCluster is what headers carry, as in Cluster.
type WatchCluster interface {
	ClusterID() uint64
	MemberID() uint64
}

// MinProgressInterval is the shortest that WatchConfig.ProgressInterval can be, as in etcd.
const MinProgressInterval = 100 * time.Millisecond

// WatchConfig is what the Watch service is made of. Store, Cluster and Random must be set.
type WatchConfig struct {
	Store   WatchStore
	Cluster WatchCluster
	// Random is what progress is told a little later by, so that streams that begin together do not
	// tell theirs together.
	Random io.Reader

	// ProgressInterval is how often a watch that asks to be notified of its progress is, while it
	// gets no events. Default 10 min, as in etcd; at least MinProgressInterval.
	ProgressInterval time.Duration
	// StallTimeout is for how long a client may read nothing of what it is sent until its stream is
	// ended. Default 5 min.
	StallTimeout time.Duration
	// ResponseBytes is about how large a response is, if it has more than one revision, or the client
	// takes fragments. Default 2 MiB, as in etcd.
	ResponseBytes int
	// MaxRevisionBytes is how large all events of one revision for one watch may be; a watch that
	// would need more is cancelled. Default 256 MiB.
	MaxRevisionBytes int

	// Logger is told which streams were ended because their clients read nothing. Default: nothing
	// is logged.
	Logger *slog.Logger
}

func (c *WatchConfig) ensureDefaults() error {
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
		c.ResponseBytes = DefaultMaxRequestBytes + RequestOverheadBytes
	}
	if c.MaxRevisionBytes <= 0 {
		c.MaxRevisionBytes = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Watch is the Watch service. It implements etcdserverpb.WatchServer.
//
// A stream has one goroutine that receives requests, and one that answers them and sends events: so
// a watch is told that it was created before it gets anything, and fragments of a response come one
// after the other. Events come from a watch.Stream, which has a bounded queue. While a client
// does not read, its sender stands still, by gRPC's flow control, and its watches fall behind and
// are served from the database later; no other stream waits. A client that reads nothing for long
// loses its stream, with an error after which etcd's clients connect again and go on where they
// were.
//
// It differs from etcd where that can do no harm:
//
//   - A request for the progress of a stream whose watches lag, or begin later, is answered when
//     they do not any more. etcd drops it, and etcd 3.7 drops it also for a watch that begins at
//     the next revision. Watches that ended for a compaction do not count.
//   - A response may have the events of several revisions that etcd sends one by one, and the other
//     way round. The revision of its header is that up to which the watch has everything.
//   - A watch for which one revision has more than WatchConfig.MaxRevisionBytes of events is
//     cancelled, and the reason says so.
type Watch struct {
	pb.UnimplementedWatchServer
	config WatchConfig
	// running are the goroutines of streams. They end with the calls.
	running sync.WaitGroup
}

var _ pb.WatchServer = (*Watch)(nil)

// NewWatch makes the service.
func NewWatch(config WatchConfig) (*Watch, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	return &Watch{config: config}, nil
}

// Wait returns when all goroutines of the service have ended, which they do soon after the gRPC
// server was stopped.
func (w *Watch) Wait() { w.running.Wait() }

type watchRPC = grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]

// Watch implements etcdserverpb.WatchServer. One goroutine receives, and another one sends; each
// ends at the latest when this returns, and gRPC ends the stream under it.
func (w *Watch) Watch(rpc watchRPC) error {
	events, err := w.config.Store.NewWatchStream()
	if err != nil {
		return watchError(err)
	}
	defer events.Close()
	ctx, cancel := context.WithCancelCause(rpc.Context())
	defer cancel(nil)
	requests := newWatchRequests()
	ended := make(chan error, 2)
	w.running.Go(func() {
		if err := receiveAll(ctx, rpc, requests); err != nil {
			ended <- err
		}
	})
	w.running.Go(func() {
		stalled := func() { cancel(errStalled) }
		ended <- newWatchSender(w, rpc, events, requests, stalled).run(ctx)
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

// receiveAll hands requests on until the stream ends. A client that has no more requests can still
// watch.
func receiveAll(ctx context.Context, rpc watchRPC, requests *watchRequests) error {
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

// progressInterval is that of one stream.
func (w *Watch) progressInterval() (time.Duration, error) {
	var random [8]byte
	if _, err := io.ReadFull(w.config.Random, random[:]); err != nil {
		return 0, fmt.Errorf("etcdserver: random source: %w", err)
	}
	interval := w.config.ProgressInterval
	later := binary.BigEndian.Uint64(random[:]) % uint64(interval/10)
	return interval + time.Duration(later), nil
}

// header is that of a response. A revision of 0 is none.
func (w *Watch) header(revision uint64) *pb.ResponseHeader {
	l, _ := w.config.Store.Leadership()
	return &pb.ResponseHeader{ClusterId: w.config.Cluster.ClusterID(),
		MemberId: w.config.Cluster.MemberID(), Revision: int64(revision), RaftTerm: l.Term}
}
