package watches

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// heldRequests bounds the requests of a stream that wait for its sender, besides cancellations.
const heldRequests = 16

// requests are the requests of a stream that wait for its sender, in order.
//
// A client that cancels many watches may read the answers only after it has sent all cancellations:
// etcd's client does, whose one goroutine does both, when the context of many watches ends. If the
// server stopped reading while it cannot send, both would wait for each other. So as many
// cancellations are held as there are watches, which take more memory than the cancellations.
type requests struct {
	// ready has a token when there is a request, and room when one was taken.
	ready, room chan struct{}
	mu          struct {
		sync.Mutex
		queue []*pb.WatchRequest
		// cancellations counts those in the queue, and open is the number of watches when the
		// sender last took a request.
		cancellations, open int
	}
}

func newRequests() *requests {
	return &requests{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func cancels(r *pb.WatchRequest) bool { return r.GetCancelRequest() != nil }

// put adds a request, and waits while there is no room for it. It returns false if ctx has ended
// before. Only one goroutine may call it.
func (q *requests) put(ctx context.Context, r *pb.WatchRequest) bool {
	for !q.putNow(r) {
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (q *requests) putNow(r *pb.WatchRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cancels(r) {
		if q.mu.cancellations >= q.mu.open+heldRequests {
			return false
		}
		q.mu.cancellations++
	} else if len(q.mu.queue)-q.mu.cancellations >= heldRequests {
		return false
	}
	q.mu.queue = append(q.mu.queue, r)
	signal(q.ready)
	return true
}

// take returns the next request, or nil if there is none. open is the number of the stream's
// watches.
func (q *requests) take(open int) *pb.WatchRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.open = open
	if len(q.mu.queue) == 0 {
		return nil
	}
	r := q.mu.queue[0]
	q.mu.queue[0] = nil
	if q.mu.queue = q.mu.queue[1:]; len(q.mu.queue) == 0 {
		q.mu.queue = nil
	} else {
		signal(q.ready)
	}
	if cancels(r) {
		q.mu.cancellations--
	}
	signal(q.room)
	return r
}

// signal puts a token into a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
