package table

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// SendTimeout is how long the receiver of a stream of the table may read nothing before the stream
// is cut off. It can open another, from the revision that it has.
const SendTimeout = 30 * time.Second

// SendTo runs a stream: run gets a send that measures the time. If a receiver reads nothing for too
// long, although there is something for it, its stream is cut off, and onCut is called. Until then
// the stream holds one update, and what gRPC buffers of it.
//
// run has a goroutine of its own, which may still be in send when SendTo returns: gRPC ends that
// call, as it does all of a stream's, when the handler has returned. Then ctx is over, and so run
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
