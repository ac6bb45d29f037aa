package embedded

import (
	"maps"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// gRPC wants its services before it serves, but a server has to answer (that a core is forming, that a node is registering)
// before all of its parts exist. The types here are registered at once and pass on to what is there by then.

var errStarting = status.Error(codes.Unavailable, "this server is starting: it has not joined its cluster yet")

// peerSwitch passes the Peer service on to the transports of the realms that exist.
type peerSwitch struct {
	peerpb.UnimplementedPeerServer
	mu     sync.Mutex
	realms map[string]*rpc.PeerTransport
	server atomic.Pointer[peerpb.PeerServer]
}

// add opens a realm.
func (p *peerSwitch) add(realm string, t *rpc.PeerTransport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	realms := maps.Clone(p.realms)
	if realms == nil {
		realms = make(map[string]*rpc.PeerTransport)
	}
	realms[realm] = t
	p.realms = realms
	var taken taker[peerpb.PeerServer]
	rpc.RegisterPeerServer(&taken, realms)
	p.server.Store(&taken.service)
}

func (p *peerSwitch) Messages(s peerpb.Peer_MessagesServer) error {
	if server := p.server.Load(); server != nil {
		return (*server).Messages(s)
	}
	return errStarting
}

func (p *peerSwitch) Snapshot(s peerpb.Peer_SnapshotServer) error {
	if server := p.server.Load(); server != nil {
		return (*server).Snapshot(s)
	}
	return errStarting
}

// taker is a registrar that keeps the service it is given.
type taker[T any] struct{ service T }

func (t *taker[T]) RegisterService(_ *grpc.ServiceDesc, service any) { t.service = service.(T) }
