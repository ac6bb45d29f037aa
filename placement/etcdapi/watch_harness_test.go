package etcdapi

import (
	"context"
	"crypto/rand"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
)

// serveWatch is serve with the Watch service.
func serveWatch(t testing.TB, change func(*Config, *watches.Config)) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{lone: newLone(t), address: listener.Addr().String()}
	s.cluster = &alone{address: s.address}
	config := Config{Store: s.lone, Cluster: s.cluster, Random: rand.Reader}
	watching := watches.Config{Store: s.lone, Cluster: s.cluster, Random: rand.Reader}
	if change != nil {
		change(&config, &watching)
	}
	services, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := watches.New(watching)
	if err != nil {
		t.Fatal(err)
	}
	services.Watch = watch
	server := grpc.NewServer(grpc.MaxRecvMsgSize(DefaultMaxRequestBytes + RequestOverheadBytes))
	services.Register(server)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	s.Client = dial(t, s.address)
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
		watch.Wait()
	})
	return s
}

// rawWatch is a stream of the Watch service, with nothing between: a client library would hide
// responses.
type rawWatch struct {
	t      testing.TB
	rpc    pb.Watch_WatchClient
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		all []*pb.WatchResponse
		err error
	}
	// more gets something when a response comes.
	more      chan struct{}
	receiving sync.WaitGroup
}

// newRawWatch opens a stream. It receives what comes, unless it is deaf.
func newRawWatch(t testing.TB, e *endpoint, deaf bool) *rawWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	rpc, err := pb.NewWatchClient(e.connection).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &rawWatch{t: t, rpc: rpc, cancel: cancel, more: make(chan struct{}, 1)}
	if !deaf {
		w.receiving.Go(w.receive)
	}
	t.Cleanup(w.close)
	return w
}

func (w *rawWatch) close() {
	w.cancel()
	w.receiving.Wait()
}

func (w *rawWatch) receive() {
	for {
		r, err := w.rpc.Recv()
		w.mu.Lock()
		if err == nil {
			w.mu.all = append(w.mu.all, r)
		}
		w.mu.err = err
		w.mu.Unlock()
		select {
		case w.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// wait waits until what has come is enough, and returns it.
func (w *rawWatch) wait(enough func([]*pb.WatchResponse) bool) []*pb.WatchResponse {
	w.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		all, err := w.mu.all, w.mu.err
		w.mu.Unlock()
		switch {
		case enough(all):
			return all
		case err != nil:
			w.t.Fatalf("the stream has ended: %v", err)
		}
		select {
		case <-w.more:
		case <-deadline:
			w.t.Fatalf("what is waited for does not come; the last are\n%v", last(all, 5))
		}
	}
}

func last(all []*pb.WatchResponse, n int) []*pb.WatchResponse { return all[max(0, len(all)-n):] }

// ended waits until the stream has ended, and returns why.
func (w *rawWatch) ended() error {
	w.t.Helper()
	w.receiving.Wait()
	return w.mu.err
}

func (w *rawWatch) send(r *pb.WatchRequest) {
	w.t.Helper()
	if err := w.rpc.Send(r); err != nil {
		w.t.Fatal(err)
	}
}

func createRequest(r *pb.WatchCreateRequest) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}

func cancelRequest(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
		CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

func progressRequest() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
		ProgressRequest: &pb.WatchProgressRequest{}}}
}

// answered sends a request, and waits for the response to it, which is the first of which is says
// that it is one.
func (w *rawWatch) answered(
	r *pb.WatchRequest, is func(*pb.WatchResponse) bool,
) *pb.WatchResponse {
	w.t.Helper()
	w.mu.Lock()
	from := len(w.mu.all)
	w.mu.Unlock()
	w.send(r)
	var answer *pb.WatchResponse
	w.wait(func(all []*pb.WatchResponse) bool {
		for _, r := range all[from:] {
			if answer == nil && is(r) {
				answer = r
			}
		}
		return answer != nil
	})
	return answer
}

func (w *rawWatch) create(r *pb.WatchCreateRequest) *pb.WatchResponse {
	w.t.Helper()
	return w.answered(createRequest(r), func(r *pb.WatchResponse) bool { return r.Created })
}

func (w *rawWatch) cancelled(id int64) *pb.WatchResponse {
	w.t.Helper()
	return w.answered(cancelRequest(id),
		func(r *pb.WatchResponse) bool { return r.WatchId == id && r.Canceled })
}

func (w *rawWatch) progress() *pb.WatchResponse {
	w.t.Helper()
	return w.answered(progressRequest(), func(r *pb.WatchResponse) bool {
		return r.WatchId == watches.NoID && !r.Created
	})
}
