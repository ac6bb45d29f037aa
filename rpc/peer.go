package rpc

import (
	"context"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Class separates traffic that must not wait for one another: each has a stream of its own.
type Class int

const (
	// ClassConsensus carries appends, votes and everything else of Raft.
	ClassConsensus Class = iota
	// ClassControl carries pings and heartbeats: small, and wanted at once.
	ClassControl
	classes
)

// PeerHandler receives what peers send. Its methods are called from the transport's goroutines.
type PeerHandler interface {
	// HandleMessages takes over a batch. Batches of one host and class come one at a time and in order; it may block for a moment,
	// which slows the sender down.
	HandleMessages(from uint64, b *peerpb.MessageBatch)
	// HandleUnreachable says that messages to the host were lost. It must not block.
	HandleUnreachable(host uint64)
	// HandleSnapshot reads one snapshot. A nil error means accepted, for which it must have read r to io.EOF: only that proves
	// it whole. Anything wrong with the stream comes as another error from r.
	HandleSnapshot(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error
}

// PeerConfig configures a PeerTransport.
type PeerConfig struct {
	// Realm keeps data nodes and core members apart that share one server ("node", "core").
	Realm string
	// Self is this host's id in the realm.
	Self uint64
	// Cluster gives the cluster id, 0 while it is not known: then nothing is sent or received.
	Cluster func() uint64
	// Resolve gives the address of a host.
	Resolve func(host uint64) (addr string, ok bool)
	Dialer  *Dialer
	Handler PeerHandler
	Logger  *slog.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// SnapshotBytesPerSecond limits all snapshots sent together; 0 is without limit.
	SnapshotBytesPerSecond int64
	// MaxSnapshots bounds the snapshots sent at a time, and those received (default 4).
	MaxSnapshots int
	// MaxQueueBytes bounds what waits to be sent, per host and class (default 16 MiB).
	MaxQueueBytes int
}

// PeerTransport carries Raft messages and snapshots between the hosts of one realm.
type PeerTransport struct{}

// NewPeerTransport makes a transport. It serves nothing until RegisterPeerServer.
func NewPeerTransport(c PeerConfig) *PeerTransport { panic("not yet") }

// Send queues messages to a host. It never blocks; the messages are marshalled before it returns, and not kept.
func (t *PeerTransport) Send(host uint64, class Class, msgs []*peerpb.RaftMessage) {}

// Ping queues a liveness ping.
func (t *PeerTransport) Ping(host uint64, p *peerpb.HostPing) {}

// SendSnapshot sends one snapshot and waits until the receiver has accepted or refused it.
func (t *PeerTransport) SendSnapshot(ctx context.Context, host uint64, h *peerpb.SnapshotHeader, write func(io.Writer) error) error {
	panic("not yet")
}

// Close stops everything; no method of the handler runs after it.
func (t *PeerTransport) Close() {}

// RegisterPeerServer serves the Peer service for the given realms.
func RegisterPeerServer(s grpc.ServiceRegistrar, realms map[string]*PeerTransport) {}
