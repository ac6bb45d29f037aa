package etcdapi

import (
	"context"
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

// What waits is bounded: 16 requests, and besides cancellations of each watch and 16 more.
func TestHeldRequestsAreBounded(t *testing.T) {
	for _, test := range []struct {
		request *pb.WatchRequest
		want    int
	}{
		{createRequest(&pb.WatchCreateRequest{}), heldRequests},
		{progressRequest(), heldRequests},
		{cancelRequest(7), heldRequests + 3},
	} {
		q := newWatchRequests()
		q.take(3)
		ctx, cancel := context.WithCancel(t.Context())
		held := 0
		for held < 100 && q.putNow(test.request) {
			held++
		}
		if held != test.want {
			t.Errorf("%v: %d are held, want %d", test.request, held, test.want)
		}
		done := make(chan bool, 1)
		go func() { done <- q.put(ctx, test.request) }()
		<-q.ready
		if q.take(3) != test.request || !<-done {
			t.Error("a request that waits for room has not got it")
		}
		go func() { done <- q.put(ctx, test.request) }()
		cancel()
		if <-done {
			t.Error("there was room for one more")
		}
	}
}
