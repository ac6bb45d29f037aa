package coord

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// WithClock has a timer take another clock for the service's, and wait in another way.
func (t *Timer) WithClock(now func() time.Time,
	wait func(context.Context, time.Duration) error) *Timer {
	t.carry = func(moment) moment {
		at := now().UnixNano()
		return moment{earliest: at, latest: at}
	}
	t.now = func(context.Context) (moment, error) { return t.carry(moment{}), nil }
	t.wait = wait
	return t
}

// Deadline is when the session is lost if no other renewal is confirmed, by the client's clock.
func (s *Session) Deadline() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.deadline
}

// Streams has a function told of each stream that is opened, by gRPC or past it. It is for Connect.
func Streams(opened func(method string, stream grpc.ClientStream)) Option {
	return func(c *config) {
		c.etcd.DialOptions = append(c.etcd.DialOptions, grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
				open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, d, conn, method, options...)
				inner := stream
				if heard, ok := stream.(*heardStream); ok {
					inner = heard.ClientStream
				}
				if err == nil {
					opened(method, inner)
				}
				return stream, err
			}))
	}
}
