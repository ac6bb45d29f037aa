package etcdapi

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A client that cancels thousands of watches, and reads the answers only after that, gets them all.
func TestManyCancellationsBeforeTheAnswersAreRead(t *testing.T) {
	s := serveWatch(t, nil)
	rpc, err := pb.NewWatchClient(connect(t, s.address).connection).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 9_000
	// Ids of nine bytes, so that what is sent is more than what the windows of flow control let
	// through.
	id := func(i int) int64 { return 1<<62 + int64(i) }
	receive := func(is func(*pb.WatchResponse) bool) {
		t.Helper()
		r, err := rpc.Recv()
		if err != nil || !is(r) {
			t.Fatalf("%v, %v", r, err)
		}
	}
	for i := range many {
		if err := rpc.Send(createRequest(&pb.WatchCreateRequest{Key: []byte("key"),
			WatchId: id(i)})); err != nil {
			t.Fatal(err)
		}
		receive(func(r *pb.WatchResponse) bool { return r.Created && r.WatchId == id(i) })
	}
	sent := make(chan error, 1)
	go func() {
		for i := range many {
			if err := rpc.Send(cancelRequest(id(i))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server reads no more requests, and the client no more responses")
	}
	for i := range many {
		receive(func(r *pb.WatchResponse) bool { return r.Canceled && r.WatchId == id(i) })
	}
}
