package embedded

import (
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// PeerFilter gets each batch of Raft messages before it is sent to another server's host, in the
// order of sending. It passes messages to send, at once or later, all or some, in another order, or
// twice. send may be called from any goroutine, even after the server is closed. In this way tests
// lose, delay and repeat messages, which a gRPC stream never does. The messages belong to the
// sender: the filter must not change them, and must clone messages that it keeps after it has
// returned.
//
// It is called from the workers that step the groups, and must not block. Snapshots and pings do
// not pass through it.
type PeerFilter func(to PeerLink, messages []*peerpb.RaftMessage, send func([]*peerpb.RaftMessage))

// PeerLink is the destination of messages.
type PeerLink struct {
	// Realm is "data" or "core". Host is the receiver's id in the realm. Address is the address of the
	// receiver's server. It is empty if it is not known at the moment.
	Realm   string
	Host    uint64
	Address string
	Class   peer.Class
}

// before puts the filter in front of a transport. A nil filter changes nothing.
func (f PeerFilter) before(realm string, t *peer.Transport,
	resolve func(uint64) (string, bool)) host.Transport {
	if f == nil {
		return t
	}
	return &filteredTransport{Transport: t, realm: realm, resolve: resolve, filter: f}
}

type filteredTransport struct {
	*peer.Transport
	realm   string
	resolve func(uint64) (string, bool)
	filter  PeerFilter
}

// Ping implements host.Transport.
func (f *filteredTransport) Ping(to uint64, p *peerpb.HostPing, beside []*peerpb.RaftMessage) {
	if len(beside) > 0 {
		f.Send(to, peer.ClassControl, beside)
	}
	f.Transport.Ping(to, p, nil)
}

// Send implements host.Transport.
func (f *filteredTransport) Send(to uint64, class peer.Class, messages []*peerpb.RaftMessage) {
	address, _ := f.resolve(to)
	f.filter(PeerLink{Realm: f.realm, Host: to, Address: address, Class: class}, messages,
		func(m []*peerpb.RaftMessage) {
			f.Transport.Send(to, class, m)
		})
}
