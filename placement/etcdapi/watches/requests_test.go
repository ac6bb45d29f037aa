package watches

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What waits is bounded: 16 requests, and besides cancellations of each watch and 16 more.
func TestHeldRequestsAreBounded(t *testing.T) {
	for _, test := range []struct {
		request *pb.WatchRequest
		want    int
	}{
		{&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{}}, heldRequests},
		{&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{}}, heldRequests},
		{&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}}, heldRequests + 3},
	} {
		q := newRequests()
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
