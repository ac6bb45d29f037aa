package table

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// SendTimeout is the time for which the receiver of a stream may read nothing before the stream is
// ended. The receiver can open another stream, from the revision that it has.
const SendTimeout = 30 * time.Second

// SendTo runs a stream. run gets a send function that measures the time of each send. If the
// receiver reads nothing for SendTimeout although there is an update for it, SendTo ends the stream
// and calls onCut. Until then the stream holds one update, and the data that gRPC buffers.
//
// run has its own goroutine, which may still be in send when SendTo returns. gRPC ends all calls of
// a stream, including that send, when the handler has returned. Then ctx has ended, and so run
// returns.
func SendTo(ctx context.Context, onCut func(), send func(*clusterpb.TableUpdate) error,
	run func(context.Context, func(*clusterpb.TableUpdate) error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled, once := make(chan struct{}), sync.Once{}
	timer := time.AfterFunc(SendTimeout, func() { once.Do(func() { close(stalled) }) })
	timer.Stop()
	defer timer.Stop()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, func(u *clusterpb.TableUpdate) error {
			timer.Reset(SendTimeout)
			defer timer.Stop()
			return send(u)
		})
	}()
	select {
	case err := <-done:
		return err
	case <-stalled:
		onCut()
		return status.Errorf(codes.ResourceExhausted, "the receiver of the partition table read "+
			"nothing for %s, and was cut off; it can open another stream", SendTimeout)
	}
}
