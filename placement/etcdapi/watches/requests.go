package watches

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// heldRequests is how many requests of a stream wait for its sender, besides cancellations.
const heldRequests = 16

// requests are the requests of a stream that wait for its sender, in order.
//
// A client that cancels many watches may read the answers only after it has sent all of that: so
// does etcd's, whose one goroutine does both, when the context of many watches ends. If the server
// read nothing more of it while it cannot send, both would wait for each other. So as many
// cancellations are held as there are watches, which take more memory than these.
type requests struct {
	// ready gets something when there is a request, and room when one was taken.
	ready, room chan struct{}
	mu          struct {
		sync.Mutex
		queue []*pb.WatchRequest
		// cancellations are how many of the queue are, and open is how many watches there were when
		// the sender last took one.
		cancellations, open int
	}
}

func newRequests() *requests {
	return &requests{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func cancels(r *pb.WatchRequest) bool { return r.GetCancelRequest() != nil }

// put adds a request, and waits while there is no room for it. It returns false if ctx has ended
// before. One goroutine puts.
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

// take returns the next request, or nil if there is none. open is how many watches the stream has.
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

// signal wakes what waits for a channel that holds one element.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
