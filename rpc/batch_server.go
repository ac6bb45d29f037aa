package rpc

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// BatchServerConfig configures a BatchServer. Only Handle is required.
type BatchServerConfig struct {
	// Handle takes over the requests of one message. It owns batch. It, or whoever it passes a request to, calls reply exactly
	// once for each request, from any goroutine, with Response.Id = Request.Id; reply never blocks, and does not keep the response.
	// While Handle runs no further request of the same client is handed over, so it should hand on and return.
	Handle func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response))
	// Cluster gives the cluster this node belongs to, 0 while it does not know. A Hello that names another is refused. nil: not checked.
	Cluster func() uint64
	// MaxInFlight bounds the requests of one stream that have no response yet (default 8192); then the stream is not read.
	MaxInFlight int
	// MaxInFlightBytes bounds their bytes and those of responses not yet written, per stream (default 64 MiB).
	MaxInFlightBytes int
	// MaxStreams bounds the open streams (default 4096); more are refused with RESOURCE_EXHAUSTED.
	MaxStreams int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// BatchServer implements the KV service.
type BatchServer struct {
	kvpb.UnimplementedKVServer
}

// NewBatchServer makes a BatchServer.
func NewBatchServer(c BatchServerConfig) *BatchServer { panic("not yet") }
