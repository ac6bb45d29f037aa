package rpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// BatchConfig configures a BatchConn.
type BatchConfig struct {
	// Conn leads to the node. The BatchConn does not close it.
	Conn *grpc.ClientConn
	// Client is the id of the client, random and not 0.
	Client uint64
	// Stream gives the next stream number, higher than all before; called once for each stream that is opened.
	Stream func() uint64
	// Cluster is the cluster the client believes in; 0 when it does not know yet.
	Cluster uint64
	// MaxInFlight bounds the requests without response (default 4096); further callers wait.
	MaxInFlight int
	// MaxInFlightBytes bounds the bytes of requests that wait to be sent (default 16 MiB); further callers wait.
	MaxInFlightBytes int
}

// ErrStreamBroken is what a request gets when its stream ends before its response came.
type ErrStreamBroken struct {
	// Sent is false if the request certainly never left this process. If true, it may or may not have reached the node.
	Sent bool
	// Cause is why the stream ended.
	Cause error
}

// Error implements error.
func (e *ErrStreamBroken) Error() string {
	if e.Sent {
		return fmt.Sprintf("stream broke after the request was sent: %v", e.Cause)
	}
	return fmt.Sprintf("stream broke before the request was sent: %v", e.Cause)
}

// Unwrap gives the cause.
func (e *ErrStreamBroken) Unwrap() error { return e.Cause }

// BatchConn carries a client's requests to one node over one stream, many at a time.
type BatchConn struct{}

// NewBatchConn makes a BatchConn; the stream opens with the first Do.
func NewBatchConn(c BatchConfig) *BatchConn { panic("not yet") }

// Do sends a request and waits for its response.
func (b *BatchConn) Do(ctx context.Context, r *kvpb.Request) (*kvpb.Response, error) { panic("not yet") }

// Close ends the stream; outstanding and later requests fail.
func (b *BatchConn) Close() {}
